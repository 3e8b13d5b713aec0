//! The request and the reply, as packets of Erlang's `{:packet, 4}`: all integers big-endian,
//! all texts bytes with their length before them, since arguments need not be UTF-8.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;

/// The longest request; the kernel takes no longer argument list by default.
const MAX_REQUEST: u32 = 16 << 20;

/// What is to be run.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub timeout_ms: u32,
    pub max_output: u32,
    pub directory: OsString,
    pub program: OsString,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
}

/// How the direct child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Exit(u32),
    Signal(u32),
    Timeout,
}

/// What is kept of a stream, valid UTF-8, and how many bytes it had.
#[derive(Debug, PartialEq, Eq)]
pub struct Stream {
    pub text: String,
    pub bytes: u64,
}

/// The answer to a request that could be carried out.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: Status,
    pub stdout: Stream,
    pub stderr: Stream,
}

/// Reads one packet.
pub fn read_packet(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > MAX_REQUEST {
        return Err(io::Error::other(format!(
            "the request has {length} bytes, expected at most {MAX_REQUEST}"
        )));
    }
    let mut packet = Vec::new();
    input.take(length.into()).read_to_end(&mut packet)?;
    if packet.len() as u64 == u64::from(length) {
        Ok(packet)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Writes one packet: a byte 0 to 2 and the reply, or a byte 3 and why there is none.
pub fn write_reply(output: &mut impl Write, reply: &Result<Reply, String>) -> io::Result<()> {
    let mut body = Vec::new();
    match reply {
        Ok(reply) => {
            let (kind, value) = match reply.status {
                Status::Exit(code) => (0, code),
                Status::Signal(signal) => (1, signal),
                Status::Timeout => (2, 0),
            };
            body.push(kind);
            body.extend(value.to_be_bytes());
            for stream in [&reply.stdout, &reply.stderr] {
                body.extend(stream.bytes.to_be_bytes());
                body.extend(length(stream.text.len())?.to_be_bytes());
                body.extend(stream.text.as_bytes());
            }
        }
        Err(message) => {
            body.push(3);
            body.extend(message.as_bytes());
        }
    }
    output.write_all(&length(body.len())?.to_be_bytes())?;
    output.write_all(&body)?;
    output.flush()
}

fn length(length: usize) -> io::Result<u32> {
    u32::try_from(length).map_err(io::Error::other)
}

/// Takes a packet apart.
pub fn parse(packet: &[u8]) -> Result<Request, String> {
    let mut rest = packet;
    let timeout_ms = integer(&mut rest)?;
    let max_output = integer(&mut rest)?;
    let directory = text(&mut rest)?;
    let mut arguments = texts(&mut rest)?.into_iter();
    let program = arguments.next().ok_or("the argument vector is empty")?;
    let arguments = arguments.collect();
    let mut variables = texts(&mut rest)?.into_iter();
    let mut environment = Vec::new();
    while let Some(name) = variables.next() {
        let value = variables.next().ok_or("a variable has no value")?;
        environment.push((name, value));
    }
    if !rest.is_empty() {
        return Err(format!("the request has {} bytes too many", rest.len()));
    }
    Ok(Request {
        timeout_ms,
        max_output,
        directory,
        program,
        arguments,
        environment,
    })
}

fn integer(rest: &mut &[u8]) -> Result<u32, String> {
    let (head, tail) = rest.split_first_chunk().ok_or("the request is cut short")?;
    *rest = tail;
    Ok(u32::from_be_bytes(*head))
}

fn text(rest: &mut &[u8]) -> Result<OsString, String> {
    let length = integer(rest)? as usize;
    let (head, tail) = rest
        .split_at_checked(length)
        .ok_or("the request is cut short")?;
    *rest = tail;
    Ok(OsString::from_vec(head.to_vec()))
}

fn texts(rest: &mut &[u8]) -> Result<Vec<OsString>, String> {
    // Not a capacity: the number is the sender's word.
    (0..integer(rest)?).map(|_| text(rest)).collect()
}
