//! Guests of the families that do not live on files continue from images of them.

use skein_harness::restored;

#[test]
fn guests_continue_from_images() {
    let families = ["signal/", "tcp/", "thread/", "time/", "udp/", "process/fork"];
    let words = families.map(str::to_owned);
    assert!(restored::all(3, &words).expect("they run"), "see the lines that begin with DIFFERS");
}
