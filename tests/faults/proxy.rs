//! Tests of the proxy and of its scripts: each fault does what its name says, at its place.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use support::fault_proxy::FaultProxy;
use support::fault_script::{Direction, Fault, Opening, Pace, Script, Strike, Tag, Traffic};
use support::fault_transport::{Strikes, Struck};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const TAG: Tag = Tag { client: 1, connection: 2 };
const LENGTH: usize = 100_000;
/// The longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(20);
/// The wait for what must not come.
const MOMENT: Duration = Duration::from_millis(100);

/// A connection through a proxy.
struct Through {
    client: TcpStream,
    server: TcpStream,
    strikes: Strikes,
    address: SocketAddr,
}

impl Through {
    async fn new(script: Script) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let strikes = Strikes::default();
        let behind = listener.local_addr().unwrap();
        let proxy = FaultProxy::start(behind, None, Arc::new(move |_, _| script), strikes.clone()).await;
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        client.write_all(&TAG.to_bytes()).await.unwrap();
        let mut server = listener.accept().await.unwrap().0;
        let mut tag = [0; Tag::LENGTH];
        server.read_exact(&mut tag).await.unwrap();
        assert_eq!(Tag::from_bytes(tag), TAG);
        Self { client, server, strikes, address: proxy.address() }
    }

    async fn with(direction: Direction, at: u64, fault: Fault) -> Self {
        Self::new(Script { strike: Some(Strike { direction, at, fault }), ..Script::CLEAN }).await
    }

    /// Sends bytes down, and receives `expected` of them.
    async fn send_down(&mut self, expected: usize) -> Vec<u8> {
        let sent = sent();
        let sending = async {
            // The proxy may have ended the connection.
            let _ = self.server.write_all(&sent).await;
        };
        tokio::select! {
            received = receive(&mut self.client, expected) => received,
            () = async { sending.await; std::future::pending().await } => unreachable!(),
        }
    }
}

fn sent() -> Vec<u8> {
    (0..LENGTH).map(|index| (index / 7) as u8).collect()
}

async fn receive(from: &mut TcpStream, expected: usize) -> Vec<u8> {
    let mut received = vec![0; expected];
    timeout(PATIENCE, from.read_exact(&mut received)).await.expect("the bytes in time").unwrap();
    received
}

/// Waits for the end of a connection.
async fn end(of: &mut TcpStream) -> io::Result<usize> {
    timeout(PATIENCE, of.read(&mut [0])).await.expect("the end in time")
}

/// Returns true if nothing comes for a moment.
async fn is_silent(stream: &mut TcpStream) -> bool {
    timeout(MOMENT, stream.read(&mut [0])).await.is_err()
}

#[test]
fn a_connection_ends_after_exactly_the_bytes_of_its_script() {
    crate::alone(async {
        for (at, fault) in [(0, Fault::Fin), (1, Fault::Fin), (50_001, Fault::Drop), (50_001, Fault::HalfClose)] {
            let mut through = Through::with(Direction::Down, at, fault).await;
            assert!(through.send_down(at as usize).await == sent()[..at as usize], "{fault:?} after {at}");
            assert_eq!(end(&mut through.client).await.unwrap(), 0, "{fault:?} after {at}");
            assert_eq!(through.strikes.of(TAG), Some(Struck::Fault));
            assert_eq!(through.strikes.all(), [(TAG, Struck::Fault, through.address)]);
        }
    });
}

#[test]
fn a_reset_is_a_reset() {
    crate::alone(async {
        let mut through = Through::with(Direction::Up, 10, Fault::Reset).await;
        through.client.write_all(&[1; 10]).await.unwrap();
        assert_eq!(end(&mut through.client).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn after_a_half_close_the_other_direction_goes_on() {
    crate::alone(async {
        let mut through = Through::with(Direction::Up, 10, Fault::HalfClose).await;
        through.client.write_all(&[1; 20]).await.unwrap();
        assert_eq!(receive(&mut through.server, 10).await, [1; 10]);
        assert_eq!(end(&mut through.server).await.unwrap(), 0);
        assert!(through.send_down(LENGTH).await == sent());
    });
}

#[test]
fn a_stall_stops_one_direction_or_both() {
    crate::alone(async {
        for (fault, goes_up) in [(Fault::Stall, true), (Fault::StallBoth, false)] {
            let mut through = Through::with(Direction::Down, 1_000, fault).await;
            assert!(through.send_down(1_000).await == sent()[..1_000]);
            assert!(is_silent(&mut through.client).await, "{fault:?}");
            through.client.write_all(&[1; 10]).await.unwrap();
            if goes_up {
                assert_eq!(receive(&mut through.server, 10).await, [1; 10]);
            } else {
                assert!(is_silent(&mut through.server).await);
            }
        }
    });
}

#[test]
fn a_flip_changes_one_bit_of_one_byte() {
    crate::alone(async {
        for at in [0, 5, 70_000] {
            let mut through = Through::with(Direction::Down, at, Fault::Flip).await;
            let received = through.send_down(LENGTH).await;
            let differing = received.iter().zip(sent()).map(|(received, sent)| (received ^ sent).count_ones());
            let places = differing.enumerate().filter(|(_, bits)| *bits > 0).collect::<Vec<_>>();
            assert_eq!(places, [(at as usize, 1)]);
        }
    });
}

#[test]
fn nothing_is_lost_by_pieces_and_pauses() {
    crate::alone(async {
        let pause = Strike { direction: Direction::Down, at: 77, fault: Fault::Pause(Duration::from_millis(5)) };
        let pace = Pace { piece: 3, first: 100, wait: Duration::from_millis(1) };
        let opening = Opening::SlowAccept(Duration::from_millis(5));
        let script = Script { opening, pace: [pace; 2], strike: Some(pause), ..Script::CLEAN };
        let mut through = Through::new(script).await;
        assert!(through.send_down(LENGTH).await == sent());
        through.client.write_all(&sent()).await.unwrap();
        assert!(receive(&mut through.server, LENGTH).await == sent());
    });
}

#[test]
fn a_seed_gives_the_same_scripts_again_and_another_seed_others() {
    let scripts = |seed: u64, traffic| {
        let tags = (0..200).map(|number| Tag { client: number % 3, connection: number });
        tags.map(|tag| Script::draw(seed, traffic, tag)).collect::<Vec<_>>()
    };
    assert_eq!(scripts(7, Traffic::Http1), scripts(7, Traffic::Http1));
    let same = |one: &[Script], other: &[Script]| one.iter().zip(other).filter(|(one, other)| one == other).count();
    assert!(same(&scripts(7, Traffic::Http1), &scripts(8, Traffic::Http1)) < 60);
    assert!(same(&scripts(7, Traffic::Http1), &scripts(7, Traffic::Http2)) < 60);
}

#[test]
fn plain_text_is_corrupted_only_where_a_client_must_notice() {
    let tags = (0..20_000).map(|connection| Tag { client: 1, connection });
    let flips = |traffic| {
        let strikes = tags.clone().filter_map(move |tag| Script::draw(3, traffic, tag).strike);
        strikes.filter(|strike| strike.fault == Fault::Flip).map(|strike| (strike.direction, strike.at))
    };
    assert!(flips(Traffic::Http1).all(|(direction, at)| direction == Direction::Down && at < 5));
    assert!(flips(Traffic::Http2).all(|flip| flip == (Direction::Down, 3) || flip.0 == Direction::Up && flip.1 < 24));
    assert!(flips(Traffic::Ciphertext).any(|(_, at)| at > 100_000));
}
