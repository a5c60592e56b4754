//! Whatever is done, and however often the process dies, a store holds what a map would hold.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::*;
use millrace_base::ShardId;
use millrace_blobs::{BlobError, Bodies, BodyName, BodyReader};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Action {
    Put {
        lane: usize,
        length: usize,
        owner: usize,
        is_known: bool,
    },
    /// Written, and dropped at some point.
    GiveUp {
        lane: usize,
        length: usize,
        how: u8,
    },
    Free(usize),
    /// A reader that is kept for a while.
    Hold(usize),
    Read {
        index: usize,
        from: usize,
        length: usize,
    },
    Tidy(usize),
    Close,
    Kill,
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..3_000usize, 1 => 3_001..6_000usize, 1 => 65_000..200_000usize, 1 => Just(65_536), 1 => Just(131_072)]
}

fn steps() -> impl Strategy<Value = Vec<Action>> {
    let step = prop_oneof![
        8 => (0..2usize, lengths(), 0..2_048usize, any::<bool>())
            .prop_map(|(lane, length, owner, is_known)| Action::Put { lane, length, owner, is_known }),
        2 => (0..2usize, lengths(), 0..4u8).prop_map(|(lane, length, how)| Action::GiveUp { lane, length, how }),
        6 => any::<usize>().prop_map(Action::Free),
        2 => any::<usize>().prop_map(Action::Hold),
        6 => (any::<usize>(), any::<usize>(), any::<usize>())
            .prop_map(|(index, from, length)| Action::Read { index, from, length }),
        4 => (0..2usize).prop_map(Action::Tidy),
        1 => Just(Action::Close),
        1 => Just(Action::Kill),
    ];
    prop::collection::vec(step, 1..60)
}

struct World {
    disk: MemoryDisk,
    bodies: Bodies,
    live: BTreeMap<BodyName, (Vec<u8>, Vec<u8>)>,
    /// Names that are gone. Those of a process before may be there again after a kill.
    gone: BTreeSet<BodyName>,
    held: Vec<(BodyReader, Vec<u8>)>,
    seed: u64,
}

impl World {
    fn begin(
        &mut self,
        lane: usize,
        length: usize,
        owner: usize,
        is_known: bool,
    ) -> (millrace_blobs::BodyWriter, Vec<u8>, Vec<u8>) {
        self.seed += 1;
        let (owner, bytes) = (content(!self.seed, owner), content(self.seed, length));
        let hint = is_known.then_some(length as u64);
        let writer = self.bodies.begin(lane, ShardId(lane as u16), &owner, hint).expect("a writer");
        let name = writer.name();
        assert!(!self.live.contains_key(&name) && !self.gone.contains(&name), "a name was given twice");
        (writer, owner, bytes)
    }

    fn put(&mut self, lane: usize, length: usize, owner: usize, is_known: bool) {
        let (mut writer, owner, bytes) = self.begin(lane, length, owner, is_known);
        for piece in bytes.chunks(1 + length / 3) {
            writer.append(piece).expect("taken");
        }
        let unsettled = sync(&self.bodies, lane, writer.finish().expect("whole")).expect("durable");
        assert_eq!(unsettled.length(), length as u64);
        assert!(
            !owners(&self.bodies).contains_key(&unsettled.name()),
            "no look at all bodies gives it before it is settled"
        );
        self.live.insert(unsettled.name(), (owner, bytes));
        unsettled.settle();
    }

    fn give_up(&mut self, lane: usize, length: usize, how: u8) {
        let (mut writer, owner, bytes) = self.begin(lane, length, 10, true);
        let name = writer.name();
        self.gone.insert(name);
        match how {
            0 => writer.append(&bytes[..length / 2]).expect("taken"),
            1 => {
                writer.append(&bytes).expect("taken");
                drop(writer.finish().expect("whole"));
            }
            _ => {
                writer.append(&bytes).expect("taken");
                let unsettled = sync(&self.bodies, lane, writer.finish().expect("whole")).expect("durable");
                if how == 2 {
                    unsettled.discard();
                } else {
                    drop(unsettled);
                    assert_eq!(owners(&self.bodies)[&name].owner, owner);
                    self.bodies.free(name);
                }
            }
        }
    }

    fn name(&self, index: usize) -> Option<BodyName> {
        self.live.keys().nth(index.checked_rem(self.live.len())?).copied()
    }

    fn read(&self, name: BodyName, from: usize, length: usize) {
        let bytes = &self.live[&name].1;
        let from = from % (bytes.len() + 1);
        let to = from + length % (bytes.len() - from + 1);
        let mut read = vec![0; to - from];
        self.bodies.read(name).expect("a body").read_at(from as u64, &mut read).expect("read");
        assert!(read == bytes[from..to], "{name}: {from}..{to}");
    }

    /// Another process opens the directory, and frees what nothing refers to.
    fn kill(&mut self) {
        self.held.clear();
        self.disk = self.disk.after_kill();
        self.bodies = open(&self.disk).0;
        for name in owners(&self.bodies).into_keys() {
            if !self.live.contains_key(&name) {
                assert!(self.gone.contains(&name), "{name} was never written");
                self.bodies.free(name);
            }
        }
    }

    fn step(&mut self, step: Action) {
        match step {
            Action::Put { lane, length, owner, is_known } => self.put(lane, length, owner, is_known),
            Action::GiveUp { lane, length, how } => self.give_up(lane, length, how),
            Action::Free(index) => {
                let Some(name) = self.name(index) else { return };
                self.live.remove(&name);
                self.gone.insert(name);
                self.bodies.free(name);
                assert_eq!(self.bodies.read(name).err(), Some(BlobError::Gone(name)));
            }
            Action::Hold(index) => {
                let Some(name) = self.name(index) else { return };
                self.held.push((self.bodies.read(name).expect("a body"), self.live[&name].1.clone()));
            }
            Action::Read { index, from, length } => {
                if let Some(name) = self.name(index) {
                    self.read(name, from, length);
                }
            }
            Action::Tidy(lane) => while self.bodies.tidy(lane).expect("nothing fails") {},
            Action::Close => self.bodies.close().expect("nothing fails"),
            Action::Kill => self.kill(),
        }
        let live_bytes: usize = self.live.values().map(|(_, bytes)| bytes.len()).sum();
        let counts = self.bodies.counts();
        assert_eq!((counts.bodies, counts.live_bytes), (self.live.len() as u64, live_bytes as u64));
    }

    fn check(&mut self) {
        for (reader, bytes) in &self.held {
            let mut read = vec![0; bytes.len()];
            reader.read_at(0, &mut read).expect("a reader keeps what it reads");
            assert!(read == *bytes);
        }
        let all = owners(&self.bodies);
        assert_eq!(all.keys().collect::<Vec<_>>(), self.live.keys().collect::<Vec<_>>());
        for (name, (owner, bytes)) in &self.live {
            assert_eq!((&all[name].owner, all[name].length), (owner, bytes.len() as u64));
            assert!(read(&self.bodies, *name).as_ref() == Ok(bytes), "{name}");
        }
        assert_eq!(scrub(&self.bodies), []);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_is_a_map(steps in steps()) {
        let disk = MemoryDisk::default();
        let bodies = open(&disk).0;
        let (live, gone, held) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        let mut world = World { disk, bodies, live, gone, held, seed: 0 };
        for step in steps {
            world.step(step);
        }
        world.check();
        world.kill();
        world.check();
        let all: Vec<BodyName> = world.live.keys().copied().collect();
        for name in all {
            world.live.remove(&name);
            world.bodies.free(name);
        }
        world.bodies.close().expect("closed");
        tidy(&world.bodies);
        // Of an empty store nothing is left but the number of its starts.
        let left: Vec<String> = world.disk.contents().into_keys().filter(|path| path != "start").collect();
        prop_assert_eq!(left, Vec::<String>::new());
    }
}
