//! Local time is UTC, whatever the machine thinks. A program of its own with one test: it changes the environment.

#[path = "all/common/mod.rs"]
mod common;

#[test]
fn the_machines_time_zone_changes_nothing() {
    // SAFETY: this process has no other test and no other thread that reads the environment yet.
    unsafe { std::env::set_var("TZ", "XYZ-5:30") };
    let mut world = common::handlers(
        "all() {
           const d = new Date(2020, 0, 31, 23, 59, 58, 7);
           return [d.toISOString(), d.getHours(), d.getDate(), d.getDay(), d.getTimezoneOffset(), `${d}`, d.toDateString(), d.toTimeString(),
             d.toLocaleString(), d.toLocaleDateString(), d.toLocaleTimeString(), new Date(d.setHours(0)).toISOString(), new Date(d.setMonth(6)).toISOString()];
         },
         parse() {
           const texts = ['2020-01-02', '2020-01-02T03:04', '2020-01-02T03:04:05.006', '2020-01-02T03:04Z', '2020-01-02T03:04+01:00', '2020-01-02 03:04',
             'Thu, 02 Jan 2020 03:04:00 GMT', 'Jan 2 2020 03:04', 'Jan 2 2020', 'nonsense'];
           return texts.map((text) => { const d = new Date(text); return [d.getTime() === Date.parse(text) || Number.isNaN(Date.parse(text)), JSON.stringify(d)]; });
         },
         same() { const d = new Date(5); return [`${new Date(d)}` === `${d}`, new Date(`${new Date(5000)}`).getTime(), `${new Date(NaN)}`, new Date(NaN).getTimezoneOffset(), new Date(2020, 0).getYear(), typeof Date()]; },",
    );
    assert_eq!(
        world.call("all", "").expect("runs"),
        concat!(
            r#"["2020-01-31T23:59:58.007Z",23,31,5,0,"Fri Jan 31 2020 23:59:58 GMT+0000 (UTC)","Fri Jan 31 2020","23:59:58 GMT+0000 (UTC)","#,
            r#""01/31/2020, 11:59:58 PM","01/31/2020","11:59:58 PM","2020-01-31T00:59:58.007Z","2020-07-31T00:59:58.007Z"]"#
        )
    );
    let expected: Vec<String> = [
        "2020-01-02T00:00:00.000Z",
        "2020-01-02T03:04:00.000Z",
        "2020-01-02T03:04:05.006Z",
        "2020-01-02T03:04:00.000Z",
        "2020-01-02T02:04:00.000Z",
        "2020-01-02T03:04:00.000Z",
        "2020-01-02T03:04:00.000Z",
        "2020-01-02T03:04:00.000Z",
        "2020-01-02T00:00:00.000Z",
    ]
    .iter()
    .map(|time| format!(r#"[true,"\"{time}\""]"#))
    .collect();
    assert_eq!(world.call("parse", "").expect("runs"), format!(r#"[{},[true,"null"]]"#, expected.join(",")));
    assert_eq!(world.call("same", ""), Ok(r#"[true,5000,"Invalid Date",null,120,"string"]"#.into()));
}
