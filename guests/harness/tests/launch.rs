//! Two starts of a guest are alike, or comparing runs would mean nothing.

use skein_harness::images::Images;
use skein_harness::runner::native;

#[test]
fn two_starts_have_the_same_addresses_ids_and_random_bytes() {
    let images = Images::build().expect("the guests build");
    for (name, must_show) in
        [("identity/id_addresses", "stack 0x7ff"), ("identity/id_process", "pid 2 ppid 1")]
    {
        let program = images.guests.join(name);
        let (first, second) = (native(&program, &[]).unwrap(), native(&program, &[]).unwrap());
        assert_eq!(first.status, Some(0), "{name} ends well");
        let text = String::from_utf8(first.stderr).unwrap();
        assert!(text.contains(must_show), "{name}: {text}");
        let strip = |text: &str| {
            // The processor that it runs on is not ours to choose.
            text.lines().filter(|line| !line.starts_with("cpu ")).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(strip(&text), strip(&String::from_utf8(second.stderr).unwrap()), "{name}");
    }
    let at_random = |_| {
        let stderr = native(&images.guests.join("identity/random_sources"), &[]).unwrap().stderr;
        let text = String::from_utf8(stderr).unwrap();
        text.lines().find(|line| line.starts_with("AT_RANDOM")).map(str::to_owned)
    };
    assert_eq!(at_random(1), at_random(2));
}

#[test]
fn a_guest_that_cannot_be_executed_says_so() {
    let run = native(std::path::Path::new("/nonexistent/guest"), &[]).unwrap();
    assert_eq!(run.status, Some(127 << 8));
    assert_eq!(run.stderr, b"harness: cannot execute the guest\n");
}
