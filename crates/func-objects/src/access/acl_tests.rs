//! Tables of access lists.

use CannedAccess::{
    AuthenticatedRead, BucketOwnerFullControl, BucketOwnerRead, LogDeliveryWrite, Private, PublicRead, PublicReadWrite,
};
use Permission::{FullControl, Read, ReadAcp, Write, WriteAcp};

use super::*;

/// A list as text: `owner: who=what …`, with `*` for everybody, `+` for every user, `log` for log delivery.
fn text(list: &AccessList) -> String {
    let grants = list.grants.iter().map(|grant| {
        let who = match &grant.grantee {
            Grantee::User(id) => id.as_str(),
            Grantee::Group(Group::AllUsers) => "*",
            Grantee::Group(Group::AuthenticatedUsers) => "+",
            Grantee::Group(Group::LogDelivery) => "log",
        };
        format!(" {who}={:?}", grant.permission)
    });
    format!("{}:{}", list.owner, grants.collect::<String>())
}

fn user(id: &str, permission: Permission) -> Grant {
    to_user(id, permission)
}

fn group(group: Group, permission: Permission) -> Grant {
    Grant { grantee: Grantee::Group(group), permission }
}

fn outcome(result: Result<AccessList, Error>) -> String {
    match result {
        Ok(list) => text(&list),
        Err(error) => Refusal::of(&error).map_or("?", Refusal::as_str).to_owned(),
    }
}

#[test]
fn canned_lists_follow_the_table() {
    // The list; of a bucket of o, of an object of o in a bucket of b.
    for (canned, bucket, object) in [
        (Private, "o: o=FullControl", "o: o=FullControl"),
        (PublicRead, "o: o=FullControl *=Read", "o: o=FullControl *=Read"),
        (PublicReadWrite, "o: o=FullControl *=Read *=Write", "o: o=FullControl *=Read *=Write"),
        (AuthenticatedRead, "o: o=FullControl +=Read", "o: o=FullControl +=Read"),
        (BucketOwnerRead, "o: o=FullControl", "o: o=FullControl b=Read"),
        (BucketOwnerFullControl, "o: o=FullControl", "o: o=FullControl b=FullControl"),
        (LogDeliveryWrite, "o: o=FullControl log=Write log=ReadAcp", "o: o=FullControl log=Write log=ReadAcp"),
    ] {
        let input = AccessInput::Canned(canned);
        assert_eq!(outcome(expand(&input, Owners { owner: "o", bucket_owner: None })), bucket, "{canned:?}");
        assert_eq!(outcome(expand(&input, Owners { owner: "o", bucket_owner: Some("b") })), object, "{canned:?}");
        let own = expand(&input, Owners { owner: "o", bucket_owner: Some("o") });
        assert_eq!(outcome(own), bucket, "{canned:?}, own bucket");
    }
}

#[test]
fn new_objects_follow_the_table() {
    use Ownership::{BucketOwnerEnforced as Enforced, BucketOwnerPreferred as Preferred, ObjectWriter as Writer};
    let canned = AccessInput::Canned;
    let grants = |grants: Vec<Grant>| AccessInput::Grants(grants);
    let refused = "AccessControlListNotSupported";
    // The input; by w in a bucket of b, for each ownership.
    for (input, enforced, preferred, writer) in [
        (AccessInput::None, "b: b=FullControl", "w: w=FullControl", "w: w=FullControl"),
        (canned(Private), refused, "w: w=FullControl", "w: w=FullControl"),
        (canned(PublicRead), refused, "w: w=FullControl *=Read", "w: w=FullControl *=Read"),
        (canned(BucketOwnerFullControl), "b: b=FullControl", "b: b=FullControl", "w: w=FullControl b=FullControl"),
        (grants(vec![user("b", FullControl)]), "b: b=FullControl", "w: b=FullControl", "w: b=FullControl"),
        (grants(vec![user("x", Read)]), refused, "w: x=Read", "w: x=Read"),
        (grants(vec![]), refused, "w:", "w:"),
        (AccessInput::List(private("w")), refused, "w: w=FullControl", "w: w=FullControl"),
        (AccessInput::List(private("x")), refused, "AccessDenied", "AccessDenied"),
    ] {
        for (ownership, expected) in [(Enforced, enforced), (Preferred, preferred), (Writer, writer)] {
            let rules = Rules { ownership, ..Rules::default() };
            let found = outcome(of_new_object(&input, Some("w"), "b", rules));
            assert_eq!(found, expected, "{input:?} {ownership:?}");
        }
    }
    let anonymous = of_new_object(&AccessInput::None, None, "b", Rules::default());
    assert_eq!(outcome(anonymous), "b: b=FullControl");
}

#[test]
fn public_lists_are_refused_where_they_are_blocked() {
    let block = PublicAccessBlock { block_public_acls: true, ..PublicAccessBlock::default() };
    let rules = Rules { block, ownership: Ownership::ObjectWriter };
    let owners = Owners { owner: "w", bucket_owner: Some("b") };
    for (input, is_refused) in [
        (AccessInput::None, false),
        (AccessInput::Canned(Private), false),
        (AccessInput::Canned(PublicRead), true),
        (AccessInput::Canned(PublicReadWrite), true),
        (AccessInput::Canned(AuthenticatedRead), true),
        (AccessInput::Canned(LogDeliveryWrite), false),
        (AccessInput::Canned(BucketOwnerRead), false),
        (AccessInput::Grants(vec![user("x", Read), group(Group::AllUsers, ReadAcp)]), true),
        (AccessInput::Grants(vec![user("x", FullControl)]), false),
    ] {
        for result in [of_new_object(&input, Some("w"), "b", rules), replaced(&input, owners, rules)] {
            assert_eq!(outcome(result) == "AccessDenied", is_refused, "{input:?}");
        }
    }
}

#[test]
fn lists_cannot_be_replaced_where_they_do_not_count() {
    let owners = Owners { owner: "b", bucket_owner: None };
    let rules = Rules { ownership: Ownership::BucketOwnerEnforced, ..Rules::default() };
    for input in [AccessInput::Canned(Private), AccessInput::List(private("b"))] {
        assert_eq!(outcome(replaced(&input, owners, rules)), "AccessControlListNotSupported");
        assert_eq!(outcome(replaced(&input, owners, Rules::default())), "b: b=FullControl");
    }
    let other = AccessInput::List(private("x"));
    assert_eq!(outcome(replaced(&other, owners, Rules::default())), "AccessDenied");
    let many = AccessInput::Grants(vec![user("x", Read); 101]);
    assert_eq!(outcome(replaced(&many, owners, Rules::default())), "InvalidRequest");
}

#[test]
fn a_bucket_whose_list_gives_something_keeps_lists() {
    for (input, is_refused) in [
        (AccessInput::None, false),
        (AccessInput::Canned(PublicRead), true),
        (AccessInput::Grants(vec![user("x", Read)]), true),
        (AccessInput::Grants(vec![user("o", Read)]), false),
    ] {
        let enforced = outcome(of_new_bucket(&input, "o", Ownership::BucketOwnerEnforced));
        assert_eq!(enforced == "InvalidBucketAclWithObjectOwnership", is_refused, "{input:?}");
        assert!(of_new_bucket(&input, "o", Ownership::BucketOwnerPreferred).is_ok());
    }
}

#[test]
fn permissions_follow_the_table() {
    // A grant; what it gives to x, to another user, to somebody without a signature.
    for (grant, to_x, to_other, to_nobody) in [
        (user("x", Read), vec![Read], vec![], vec![]),
        (user("x", Write), vec![Write], vec![], vec![]),
        (user("x", ReadAcp), vec![ReadAcp], vec![], vec![]),
        (user("x", WriteAcp), vec![WriteAcp], vec![], vec![]),
        (user("x", FullControl), vec![FullControl, Read, Write, ReadAcp, WriteAcp], vec![], vec![]),
        (group(Group::AllUsers, Read), vec![Read], vec![Read], vec![Read]),
        (group(Group::AuthenticatedUsers, Read), vec![Read], vec![Read], vec![]),
        (group(Group::LogDelivery, FullControl), vec![], vec![], vec![]),
    ] {
        let list = AccessList { owner: "o".to_owned(), grants: vec![grant.clone()] };
        for (who, expected) in [(Some("x"), &to_x), (Some("y"), &to_other), (None, &to_nobody)] {
            for permission in [FullControl, Read, Write, ReadAcp, WriteAcp] {
                let found = allows(List::from(&list), who, permission, false);
                assert_eq!(found, expected.contains(&permission), "{grant:?} {who:?} {permission:?}");
                let is_public = is_public(&list.grants);
                assert_eq!(
                    allows(List::from(&list), who, permission, true),
                    found && !is_public,
                    "{grant:?} {who:?} ignored"
                );
            }
        }
        // The owner reads and replaces the list, whatever it says.
        for (permission, expected) in [(ReadAcp, true), (WriteAcp, true), (Write, false)] {
            assert_eq!(allows(List::from(&list), Some("o"), permission, true), expected, "{grant:?} {permission:?}");
        }
    }
}
