//! Enums of which each kind has a name for people.

macro_rules! named {
    (
        $(#[doc = $about:literal])*
        pub enum $kinds:ident { $($(#[doc = $what:literal])* $kind:ident = $name:literal,)* }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kinds {
            $($(#[doc = $what])* $kind,)*
        }

        impl $kinds {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [$kinds] = &[$($kinds::$kind,)*];

            /// Its name, for people and on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($kinds::$kind => $name,)*
                }
            }
        }
    };
}

pub(crate) use named;
