//! Local ports that run out.

use std::time::Duration;

use futures_util::future::join_all;
use speeddial::trace::Phase;
use speeddial::{Client, ErrorKind, PoolConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use support::namespace::Namespace;

#[test]
fn ten_local_ports_are_enough_for_thirty_servers_and_their_lack_is_named() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::enter("ports");
        let range = "/proc/sys/net/ipv4/ip_local_port_range";
        if namespace.is_err() || std::fs::write(range, "40000 40009").is_err() {
            eprintln!("SKIPPED: no network namespace can be made, or its ports cannot be set");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for port in 8_001..=8_030 {
                serve(port, true).await;
            }
            serve(8_031, false).await;
            let local = std::net::IpAddr::from([127, 0, 0, 1]);
            let client = |wait: Duration| {
                let pool = PoolConfig::new().wait_timeout(wait);
                Client::builder().no_proxy().pool(pool).local_address(local).build().unwrap()
            };
            let patient = client(support::LONG);
            let get = async |port: u16| patient.get(format!("http://127.0.0.1:{port}/")).send().await?.text().await;
            for answer in join_all((8_001..=8_030).map(get)).await {
                assert_eq!(answer.unwrap_or_else(|error| panic!("{error:#}")), "ok");
            }
            let client = client(Duration::from_secs(2));
            let call = || client.get("http://127.0.0.1:8031/").timeout(Duration::from_secs(4)).send();
            let errors: Vec<_> = join_all((0..12).map(|_| call())).await.into_iter().map(Result::unwrap_err).collect();
            let queued = errors.iter().filter(|error| error.kind() == ErrorKind::Timeout(Phase::Queue));
            let texts: Vec<_> = queued.map(ToString::to_string).collect();
            let named = "the local ports are used up (EADDRNOTAVAIL)";
            assert!(texts.len() >= 2 && texts.iter().all(|text| text.contains(named)), "{errors:?}");
        });
    });
    thread.join().unwrap();
}

async fn serve(port: u16, answers: bool) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            if !answers {
                silent.push(socket);
                continue;
            }
            tokio::spawn(async move {
                while socket.read_buf(&mut Vec::with_capacity(1_024)).await.is_ok_and(|read| read > 0) {
                    let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                }
            });
        }
    });
}
