//! Guests of all families continue from images of them.

use skein_harness::restored;

#[test]
fn guests_continue_from_images() {
    assert!(restored::all(3, &[]).expect("they run"), "see the lines that begin with DIFFERS");
}
