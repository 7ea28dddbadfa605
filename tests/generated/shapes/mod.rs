//! The shapes of requests: methods, bodies, protocols, ways, and what is around them, any three together.

mod given;
mod oracle;
mod run;

use std::fmt;

use crate::covering::{self, Row};
use crate::factors::{self, factor};

/// A shape of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    method: Method,
    body: Body,
    protocol: Protocol,
    way: Way,
    around: Around,
}

factor! { Method { Get, Head, Post, Put, Delete, Options } }

factor! {
    Body {
        None, Bytes, Sized, Unsized, Empty, Fails, Panics, Stalls, File, Proc, Form, Multipart, MultipartOfStream, WithTrailers,
        Wrapped, PassedOn,
    }
}

factor! {
    /// The protocol of the server.
    Protocol { Http10, Http11, Http2 }
}

factor! { Way { Direct, Forward, Tunnel, Tls, Unix } }

factor! {
    Around {
        Nothing, Layer, AttemptLayer, Hedge, Retry, Redirect301, Redirect303, Redirect307, Redirect308, Closed, Token, Expect,
        Deadline,
    }
}

impl Shape {
    const SIZES: [usize; 5] =
        [Method::ALL.len(), Body::ALL.len(), Protocol::ALL.len(), Way::ALL.len(), Around::ALL.len()];

    fn of(row: &Row) -> Self {
        Self {
            method: Method::ALL[row[0]],
            body: Body::ALL[row[1]],
            protocol: Protocol::ALL[row[2]],
            way: Way::ALL[row[3]],
            around: Around::ALL[row[4]],
        }
    }

    /// Returns false for what does not exist: a forward proxy for HTTP/2.
    fn makes_sense(self) -> bool {
        !(self.protocol == Protocol::Http2 && self.way == Way::Forward)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, body, protocol, way, around } = self;
        write!(f, "{method:?} {body:?} {protocol:?} {way:?} {around:?}")
    }
}

#[test]
fn what_is_given_is_sent_once_in_every_shape_of_a_request() {
    let (seed, rounds) = (factors::number("SEED", 1), factors::number("ROUNDS", 1));
    for seed in seed..seed + rounds {
        let rows = covering::rows(&Shape::SIZES, 3, seed, |row| Shape::of(row).makes_sense());
        let shapes = rows.iter().map(Shape::of).filter(factors::is_chosen);
        let failed = run::run(shapes.collect());
        assert!(failed.is_empty(), "SEED={seed}: {} shapes failed\n{}", failed.len(), failed.join("\n"));
    }
}
