//! The clients of a server, as its head writes them: steps separated by commas.
//!
//! ```text
//! open                     connects
//! send "TEXT"              sends; `send N bytes` sends so many `z`
//! receive N                waits until it has received N bytes more
//! ask "TEXT" for N         sends, then receives; with `+N`: as many bytes as it sent and N more
//! N times (STEPS)          does steps again and again
//! fin, reset               shuts its sending side; resets the connection
//! closed                   waits until the server has closed the connection in order
//! signal USR1              sends the server a signal; HUP is the other one
//! ```
//!
//! In a text `\n` is the end of a line, `{client}` the client's number, `{n}` the number of earlier rounds of `times`, and `{fill}`
//! that many letters and three more.

use crate::script::Step;

/// `count` clients, of which the first has the number `first`.
pub fn parse(text: &str, first: usize, count: usize) -> Result<Vec<Vec<Step>>, String> {
    (first..first + count).map(|client| one(text, client)).collect()
}

/// Adds a client that ends the server when all others are done.
#[must_use]
pub fn then_quit(mut clients: Vec<Vec<Step>>) -> Vec<Vec<Step>> {
    let mut last: Vec<Step> = (0..clients.len()).map(Step::Await).collect();
    last.push(Step::Open);
    last.push(Step::Send(b"quit\n".to_vec()));
    clients.push(last);
    clients
}

fn one(text: &str, client: usize) -> Result<Vec<Step>, String> {
    let mut writer = Writer { client, received: 0, steps: Vec::new() };
    writer.list(text, 0)?;
    Ok(writer.steps)
}

struct Writer {
    client: usize,
    /// The number of bytes that it has waited for so far.
    received: usize,
    steps: Vec<Step>,
}

impl Writer {
    fn list(&mut self, text: &str, n: usize) -> Result<(), String> {
        pieces(text)?.into_iter().try_for_each(|piece| self.step(piece, n))
    }

    fn step(&mut self, text: &str, n: usize) -> Result<(), String> {
        let unknown = || format!("`{text}` is no step");
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let step = match (word, rest) {
            ("open", "") => Step::Open,
            ("fin", "") => Step::Fin,
            ("reset", "") => Step::Reset,
            ("closed", "") => Step::Closed,
            ("signal", "HUP") => Step::Signal(libc::SIGHUP as u8),
            ("signal", "USR1") => Step::Signal(libc::SIGUSR1 as u8),
            ("receive", bytes) => self.receive(number(bytes)?),
            ("send", what) => match what.strip_suffix(" bytes") {
                Some(bytes) => Step::Send(vec![b'z'; number(bytes)?]),
                None => Step::Send(self.bytes(what, n)?),
            },
            ("ask", what) => {
                let (what, answer) = what.rsplit_once(" for ").ok_or_else(unknown)?;
                let request = self.bytes(what, n)?;
                let answer = match answer.strip_prefix('+') {
                    Some(more) => request.len() + number(more)?,
                    None => number(answer)?,
                };
                self.steps.push(Step::Send(request));
                self.receive(answer)
            }
            (times, rest) => {
                let steps = rest.strip_prefix("times (").and_then(|rest| rest.strip_suffix(')'));
                let steps = steps.ok_or_else(unknown)?;
                return (0..number(times)?).try_for_each(|n| self.list(steps, n));
            }
        };
        self.steps.push(step);
        Ok(())
    }

    fn receive(&mut self, bytes: usize) -> Step {
        self.received += bytes;
        Step::Receive(self.received)
    }

    fn bytes(&self, quoted: &str, n: usize) -> Result<Vec<u8>, String> {
        let text = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let text = text.ok_or_else(|| format!("`{quoted}` is no text in quotes"))?;
        let text = text
            .replace("\\n", "\n")
            .replace("{client}", &self.client.to_string())
            .replace("{n}", &n.to_string())
            .replace("{fill}", &"x".repeat(n + 3));
        if text.is_empty() || text.contains(['{', '\\']) {
            return Err(format!("`{quoted}` cannot be sent"));
        }
        Ok(text.into_bytes())
    }
}

fn number(digits: &str) -> Result<usize, String> {
    digits.parse().map_err(|_| format!("`{digits}` is no number"))
}

/// Splits at commas that are neither in quotes nor in brackets.
fn pieces(text: &str) -> Result<Vec<&str>, String> {
    let (mut found, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0_i32, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                found.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if quoted || depth != 0 {
        return Err(format!("`{text}` has a quote or a bracket alone"));
    }
    found.push(text[start..].trim());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_those_that_are_written() {
        let text = r#"signal USR1, open, 2 times (ask "{client}{fill},{n}\n" for +1, signal HUP), receive 3, send 2 bytes, fin, closed, reset"#;
        let clients = parse(text, 5, 2).expect("steps");
        assert_eq!(clients.len(), 2);
        let expected = [
            Step::Signal(10),
            Step::Open,
            Step::Send(b"5xxx,0\n".to_vec()),
            Step::Receive(8),
            Step::Signal(1),
            Step::Send(b"5xxxx,1\n".to_vec()),
            Step::Receive(8 + 9),
            Step::Signal(1),
            Step::Receive(8 + 9 + 3),
            Step::Send(b"zz".to_vec()),
            Step::Fin,
            Step::Closed,
            Step::Reset,
        ];
        assert_eq!(clients[0], expected);
        assert_eq!(clients[1][2], Step::Send(b"6xxx,0\n".to_vec()));
    }

    #[test]
    fn what_is_no_step_is_named() {
        for (text, why) in [
            ("open, jump", "`jump` is no step"),
            ("open,", "`` is no step"),
            ("open now", "`open now` is no step"),
            ("signal KILL", "`signal KILL` is no step"),
            ("receive x", "`x` is no number"),
            ("send hello", "`hello` is no text in quotes"),
            ("send \"\"", "`\"\"` cannot be sent"),
            ("send \"{who}\"", "`\"{who}\"` cannot be sent"),
            ("ask \"x\"", "`ask \"x\"` is no step"),
            ("x times (open)", "`x` is no number"),
            ("2 times open", "`2 times open` is no step"),
            ("2 times (open", "`2 times (open` has a quote or a bracket alone"),
            ("send \"x", "`send \"x` has a quote or a bracket alone"),
        ] {
            assert_eq!(parse(text, 0, 1).expect_err(text), why);
        }
    }

    #[test]
    fn the_last_client_waits_for_all_others() {
        let clients = then_quit(parse("open", 0, 2).expect("steps"));
        assert_eq!(clients.len(), 3);
        let quit = Step::Send(b"quit\n".to_vec());
        assert_eq!(clients[2], [Step::Await(0), Step::Await(1), Step::Open, quit]);
    }
}
