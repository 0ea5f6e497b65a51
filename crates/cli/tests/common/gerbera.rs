//! gerbera, a UPnP media server, with a configuration of its own.

use super::Place;

/// Its path in Debian.
pub const PROGRAM: &str = "/usr/bin/gerbera";
/// Its port; libupnp wants none below.
pub const PORT: u16 = 49152;
/// Its interface. An address for documentation: no packet ever goes there.
pub const INTERFACE: &str = "192.0.2.9/24";

/// Writes its configuration; answers its command line.
pub fn command(place: &Place) -> Vec<String> {
    let home = place.path("home");
    std::fs::create_dir(&home).unwrap();
    let home = home.to_str().unwrap();
    let text = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<config version="2" xmlns="http://mediatomb.cc/config/2" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
        xsi:schemaLocation="http://mediatomb.cc/config/2 http://mediatomb.cc/config/2.xsd">
  <server>
    <ui enabled="yes"><accounts enabled="no" session-timeout="30"><account user="a" password="b"/></accounts></ui>
    <name>words</name>
    <udn>uuid:5ce11000-0000-4000-8000-000000000001</udn>
    <home>{home}</home>
    <webroot>/usr/share/gerbera/web</webroot>
    <storage><sqlite3 enabled="yes"><database-file>words.db</database-file></sqlite3></storage>
  </server>
  <import hidden-files="no">
    <scripting script-charset="UTF-8"><virtual-layout type="builtin"/></scripting>
    <mappings>
      <extension-mimetype ignore-unknown="no"><map from="mp3" to="audio/mpeg"/></extension-mimetype>
      <mimetype-upnpclass><map from="audio/*" to="object.item.audioItem.musicTrack"/></mimetype-upnpclass>
    </mappings>
  </import>
</config>
"#
    );
    let config = place.file("gerbera.xml", &text, 0o644);
    let config = config.to_str().unwrap();
    let port = PORT.to_string();
    let words = [PROGRAM, "--config", config, "--home", home, "--cfgdir", ".", "--port", &port];
    words.map(String::from).to_vec()
}
