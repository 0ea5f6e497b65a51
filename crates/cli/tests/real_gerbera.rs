//! gerbera from Debian on three replicas, with an interface of its own: its web pages and its UPnP service are used while the leader dies.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io;

use common::cluster::free_port;
use common::gerbera::{self, INTERFACE, PORT};
use common::http::Http;
use common::real::{Random, Real};
use common::story::{PATIENCE_OF_A_CLIENT, leader_dies_under_load, tool};
use common::{Place, wait_for};
use serde_json::Value;

const CLIENTS: usize = 6;
/// Folders made before and after the leader's death.
const FOLDERS: u64 = 60;
const TRACKS: usize = 3;

fn start() -> Real {
    let (place, port) = (Place::new(), free_port());
    fs::create_dir(place.path("media")).unwrap();
    for number in 0..TRACKS {
        let bytes = Random::new(number as u64 + 1).bytes(40_000 * (number + 1));
        fs::write(place.path(&format!("media/track{number}.mp3")), bytes).unwrap();
    }
    let server = gerbera::command(&place);
    let publish = format!("127.0.0.1:{port}:{PORT}");
    Real::serve(place, port, &["--interface", INTERFACE, "--publish", &publish], server)
}

/// One request to the web pages' interface; it answers one a connection.
fn ask(port: u16, query: &str) -> io::Result<Value> {
    let mut http = Http::connect(port, PATIENCE_OF_A_CLIENT)?;
    let answer = http.get(&format!("/content/interface?{query}"))?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_str(&answer.text()).map_err(|_| io::ErrorKind::UnexpectedEof.into())
}

#[track_caller]
fn asked(port: u16, query: &str) -> Value {
    let answer = ask(port, query).unwrap();
    assert_eq!(answer["success"], true, "{query}: {answer}");
    answer
}

fn session(port: u16) -> String {
    asked(port, "req_type=auth&action=get_sid")["sid"].as_str().unwrap().into()
}

/// The titles of the folders in a folder.
fn folders(port: u16, session: &str, parent: u64) -> BTreeMap<String, u64> {
    let query = format!("req_type=containers&sid={session}&parent_id={parent}");
    let answer = asked(port, &query);
    let all = answer["containers"]["container"].as_array().unwrap();
    all.iter()
        .map(|one| (one["title"].as_str().unwrap().into(), one["id"].as_u64().unwrap()))
        .collect()
}

/// The containers of the tracks below a folder.
fn tracks(port: u16, session: &str, parent: u64) -> BTreeMap<String, String> {
    let query = format!("req_type=items&sid={session}&parent_id={parent}&start=0&count=100");
    let answer = asked(port, &query);
    let items = answer["items"]["item"].as_array().cloned().unwrap_or_default();
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_string();
    let mut found: BTreeMap<String, String> =
        items.iter().map(|item| (text(item, "title"), text(item, "res"))).collect();
    for id in folders(port, session, parent).into_values() {
        found.extend(tracks(port, session, id));
    }
    found
}

/// A UPnP client's view of the top folder.
fn browse(port: u16) -> String {
    let body = "<?xml version=\"1.0\"?><s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" \
        s:encodingStyle=\"http://schemas.xmlsoap.org/soap/encoding/\"><s:Body>\
        <u:Browse xmlns:u=\"urn:schemas-upnp-org:service:ContentDirectory:1\"><ObjectID>0</ObjectID>\
        <BrowseFlag>BrowseDirectChildren</BrowseFlag><Filter>*</Filter><StartingIndex>0</StartingIndex>\
        <RequestedCount>0</RequestedCount><SortCriteria></SortCriteria></u:Browse></s:Body></s:Envelope>";
    let action =
        "SOAPACTION: \"urn:schemas-upnp-org:service:ContentDirectory:1#Browse\"".to_string();
    let url = format!("http://127.0.0.1:{port}/upnp/control/cds");
    let kind = "Content-Type: text/xml; charset=\"utf-8\"";
    tool("curl", &["-sS", "-H", kind, "-H", &action, "--data", body, &url])
}

#[test]
fn media_are_served_while_the_leader_dies() {
    let real = start();
    let port = real.port();

    // Its description has the configured address.
    let description = tool("curl", &["-sS", &format!("http://127.0.0.1:{port}/description.xml")]);
    assert!(description.contains("<presentationURL>http://192.0.2.9:49152/"), "{description}");

    let session = session(port);
    let media = real.cluster.place.path("media");
    let hex: String = media.to_str().unwrap().bytes().map(|b| format!("{b:02x}")).collect();
    asked(port, &format!("req_type=add&sid={session}&object_id={hex}"));
    // Where each file is once; other folders sort the same ones.
    let directory = folders(port, &session, 0)["PC Directory"];
    let found = wait_for("all tracks to be known", || {
        let found = tracks(port, &session, directory);
        (found.len() >= TRACKS).then_some(found)
    });

    let make = |_: &mut (), word: &str| {
        let query = format!(
            "req_type=add_object&sid={session}&parent_id=0&obj_type=container&class=object.container&title=w{word}"
        );
        let answer = ask(port, &query)?;
        assert_eq!(answer["success"], true, "{answer}");
        Ok(())
    };
    let books = leader_dies_under_load(&real, CLIENTS, FOLDERS, || Ok(()), make);
    let made: Vec<String> = folders(port, &session, 0)
        .into_keys()
        .filter_map(|title| title.strip_prefix('w').map(Into::into))
        .collect();
    books.assert_found(&made);
    let answer = browse(port);
    for word in &made {
        assert!(answer.contains(&format!("&gt;w{word}&lt;")), "no {word} in {answer}");
    }

    // The same media as before, by the new leader.
    assert_eq!(tracks(port, &session, directory), found);
    for (title, place) in found {
        let path =
            place.strip_prefix("http://192.0.2.9:49152").unwrap_or_else(|| panic!("{place}"));
        let mut http = Http::connect(port, PATIENCE_OF_A_CLIENT).unwrap();
        let answer = http.get(path).unwrap();
        assert_eq!(answer.status, 200, "{title}: {}", answer.text());
        let file = media.join(&title).with_extension("mp3");
        assert!(answer.body == fs::read(file).unwrap(), "{title} is another one");
    }
    real.continue_a_follower_with_a_client(|| Ok(()), make);
    real.end();
}
