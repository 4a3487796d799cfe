//! A running `polyrank lighthouse`, and how it is asked over HTTP.
#![allow(dead_code, reason = "each suite uses its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A running `polyrank lighthouse`; it is killed if a test fails.
pub(crate) struct ServedLighthouse {
    pub(crate) child: Child,
    /// What it said.
    pub(crate) lines: [String; 3],
}

impl ServedLighthouse {
    /// On a free port, with these further words and variables.
    pub(crate) fn start(words: &[&str], variables: &[(&str, &str)]) -> ServedLighthouse {
        let mut command = command(variables);
        command.args(["--port", "0"]).args(words).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let lines = std::array::from_fn(|_| {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            line.trim().to_owned()
        });
        ServedLighthouse { child, lines }
    }

    /// For replicas.
    pub(crate) fn url(&self) -> &str {
        self.lines[1].strip_prefix("replicas:").unwrap().trim()
    }

    pub(crate) fn port(&self) -> u16 {
        self.url().rsplit_once(':').unwrap().1.parse().unwrap()
    }

    /// The status line and the body of an answer.
    pub(crate) fn ask(&self, line: &str, header: &str) -> (String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).unwrap();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: 0\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.ask("GET /status", "").1).unwrap()
    }
}

impl Drop for ServedLighthouse {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `polyrank lighthouse` with no other variables of its own than these.
pub(crate) fn command(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrank"));
    command.env_remove("POLYRANK_TOKEN").env_remove("POLYRANK_INSECURE");
    command.arg("lighthouse").envs(variables.iter().copied());
    command
}
