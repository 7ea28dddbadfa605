//! Descriptors that run out. A program of its own, because it lowers its own limit.
//!
//! The server runs in another process, so that its sockets do not count against the limit.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and a program prints")]

#[cfg(unix)]
fn main() {
    unix::main();
}

#[cfg(not(unix))]
fn main() {
    println!("SKIPPED: there is no limit of descriptors to lower");
}

#[cfg(unix)]
mod unix {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use http_body_util::{BodyExt, Full};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use speeddial::dns::HickoryResolver;
    use speeddial::trace::Phase;
    use speeddial::{Body, Client, ClientBuilder, ErrorKind, PoolConfig};

    use support::http_server::HttpServer;

    pub(super) fn main() {
        match std::env::args().nth(1).as_deref() {
            Some("serve") => serve(),
            Some("defaults") => defaults(),
            Some("beyond") => beyond(),
            Some("none") => none(),
            Some("files") => files(),
            // `cargo test` may pass a filter.
            _ => ["defaults", "beyond", "none", "files"].into_iter().for_each(run),
        }
    }

    /// Runs a test in a process of its own, because a process lowers its limit for good.
    fn run(test: &str) {
        let status = Command::new(std::env::current_exe().unwrap()).arg(test).status().unwrap();
        assert!(status.success(), "{test}: {status}");
        println!("test {test} ... ok");
    }

    fn serve() {
        let body = || Full::new("ok".into()).map_err(|error| match error {}).boxed();
        let server = HttpServer::start(move |request: hyper::Request<hyper::body::Incoming>| async move {
            let _ = request.into_body().collect().await;
            hyper::Response::new(body())
        });
        let server = server.unwrap();
        println!("{}", server.address());
        // The server ends with the process that started it.
        let _ = std::io::stdin().read(&mut [0]);
    }

    struct Server(Child);

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Starts a server in another process and returns its URL.
    fn server() -> (Server, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        (Server(child), format!("http://{}/", address.trim()))
    }

    fn allow(descriptors: u64) {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(descriptors), maximum }).unwrap();
    }

    fn descriptors() -> u64 {
        std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
    }

    /// Returns the builder of a client that opens no file in the background.
    fn builder() -> ClientBuilder {
        let builder = Client::builder().no_proxy();
        #[cfg(feature = "__tls")]
        let builder = builder.tls(speeddial::tls::TlsConfig::new().prepare_in_background(false));
        builder
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    }

    async fn load(client: &Client, url: &str, tasks: usize, requests: usize) {
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let client = client.clone();
                let url = url.to_owned();
                tokio::spawn(async move {
                    for _ in 0..requests {
                        let text = async { client.get(&url).send().await?.text().await }.await;
                        assert_eq!(text.unwrap_or_else(|error| panic!("{error}")), "ok");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    }

    /// 256 descriptors, 1,000 tasks with 100 requests each: the default limit of connections is below the limit of descriptors, so no
    /// request is affected.
    fn defaults() {
        let (_server, url) = server();
        allow(256);
        runtime().block_on(async {
            let client = builder().build().unwrap();
            let most = tokio::spawn(async {
                let mut most = 0;
                for _ in 0..200 {
                    most = most.max(descriptors());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                most
            });
            load(&client, &url, 1_000, 100).await;
            let stats = client.pool_stats();
            // On a busy machine a dial can be slow, and be given up for another one as it opens its connection.
            assert!(stats.opened - stats.closed <= 179 && stats.most_leased <= 179, "70 % of 256: {stats:?}");
            assert!(stats.closed <= 9, "a load of one kind opens its connections once: {stats:?}");
            assert!(most.await.unwrap() < 256);
        });
    }

    /// More connections are allowed than there are descriptors: dials without a descriptor wait for one.
    fn beyond() {
        let (_server, url) = server();
        allow(128);
        runtime().block_on(async {
            let client = builder().pool(PoolConfig::new().max_connections(10_000)).build().unwrap();
            load(&client, &url, 1_000, 20).await;
            let stats = client.pool_stats();
            assert!((20..=128).contains(&stats.opened) && stats.waiting == 0, "{stats:?}");
        });
    }

    /// Opens files until there are no more descriptors.
    fn take_all() -> Vec<std::fs::File> {
        std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
    }

    /// There is a connection, and no descriptor for the file that is sent on it: the body waits for one.
    fn files() {
        let (_server, url) = server();
        let path = std::env::temp_dir().join(format!("speeddial-{}-descriptors", std::process::id()));
        std::fs::write(&path, vec![b'x'; 1_000_000]).unwrap();
        runtime().block_on(async {
            let client = builder().build().unwrap();
            client.get(&url).send().await.unwrap().text().await.unwrap();
            allow(64);
            let taken = take_all();
            let body = Body::file(&path).await.unwrap();
            assert_eq!(body.content_length(), Some(1_000_000));
            assert!(Body::file("/dev/null").await.is_err(), "a device has to be opened");
            let mut upload = tokio::spawn(client.put(&url).body(body).send());
            let early = tokio::time::timeout(Duration::from_millis(300), &mut upload).await;
            assert!(early.is_err(), "without a descriptor: {early:?}");
            drop(taken);
            assert_eq!(upload.await.unwrap().unwrap().text().await.unwrap(), "ok");
        });
        std::fs::remove_file(path).unwrap();
    }

    /// There are no descriptors at all: requests fail only after the queue timeout, and succeed once descriptors are free again.
    fn none() {
        let (_server, url) = server();
        let runtime = runtime();
        runtime.block_on(async {
            let wait = Duration::from_millis(700);
            let pool = PoolConfig::new().wait_timeout(wait);
            let client = builder().pool(pool.clone()).build().unwrap();
            let servers = HickoryResolver::with_servers([std::net::SocketAddr::from(([127, 0, 0, 1], 9))]);
            let patient = builder().pool(PoolConfig::new().wait_timeout(Duration::from_secs(60))).build().unwrap();
            let named = builder().pool(pool).dns_resolver(servers).build().unwrap();
            allow(64);
            let taken = take_all();
            let start = Instant::now();
            let error = client.get(&url).send().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Queue), "{error}");
            assert!(error.to_string().contains(": no more sockets can be opened at the moment"), "{error}");
            assert!(start.elapsed() >= wait);
            // A lookup without a descriptor is not reported as a DNS failure either.
            let error = named.get("http://api.test/").send().await.unwrap_err();
            assert!(error.to_string().contains(": no more sockets can be opened at the moment"), "{error}");
            let waiting = tokio::spawn({
                let url = url.clone();
                async move { patient.get(&url).send().await }
            });
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(taken);
            assert!(waiting.await.unwrap().is_ok());
        });
    }
}
