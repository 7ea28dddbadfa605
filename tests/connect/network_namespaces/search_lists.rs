//! Search lists of resolv.conf: the client finds the same addresses as getaddrinfo.

use std::collections::BTreeSet;
use std::process::Command;

use hickory_proto::op::{Message, Query, ResponseCode};
use speeddial::dns::{Family, HickoryResolver, Resolver};

use support::namespace::Namespace;

/// The lines of resolv.conf, the name that is looked up, and the records of the server.
///
/// A record is an owner (`*` stands for any labels), a type, and the last part of an address or a failure.
const SEARCHES: [(&str, &str, &str); 19] = [
    ("search a.test", "db.-b.test", "db.-b.test A 1"),
    ("search a.test b.test", "db", "db.a.test A 1, db.b.test AAAA 2"),
    ("search a.test b.test", "db", "db.a.test AAAA 1, db.b.test A 2"),
    ("search a.test b.test", "db", "db.a.test - -, db.b.test A 2, db.b.test AAAA 2"),
    ("search a.test b.test", "db", "db.b.test A 2, db.b.test AAAA 2"),
    ("search a.test b.test", "db", "db A 3"),
    ("search a.test b.test", "api.example.com", "api.example.com A 9, *.a.test AAAA 1"),
    ("search a.test b.test", "api.example.com", "api.example.com - -, api.example.com.b.test A 2"),
    (
        "search a.test b.test",
        "api.example.com",
        "api.example.com A servfail, api.example.com AAAA servfail, *.b.test A 2",
    ),
    ("search a.test b.test\noptions ndots:5", "api.example.com", "api.example.com A 9, *.b.test AAAA 2"),
    ("search a.test b.test\noptions ndots:5", "api.example.com", "api.example.com A 9"),
    ("search a.test b.test", "db.", "db.a.test A 1"),
    ("search a.test b.test", "db", "db.a.test A servfail, db.a.test AAAA 1, db.b.test A 2"),
    ("search a.test b.test", "db", "db.a.test A 1, db.a.test AAAA servfail, db.b.test AAAA 2"),
    ("search a.test b.test", "db", "db.a.test A servfail, db.a.test AAAA servfail, db.b.test A 2"),
    ("search a.test b.test", "db", "db.a.test A refused, db.a.test AAAA refused, db.b.test A 2, db A 3"),
    ("search .", "db", "db A 3, db AAAA 3"),
    ("search .lan b.test", "db", "db.lan A 1, db.b.test A 2"),
    ("search a.test\ndomain b.test", "db", "db.a.test A 1, db.b.test A 2"),
];

#[test]
fn a_search_list_gives_the_same_addresses_as_getaddrinfo() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::enter("search");
        let Ok(namespace) = namespace else {
            eprintln!("SKIPPED: no network namespace can be made");
            return;
        };
        std::fs::create_dir_all(namespace.etc()).unwrap();
        let zone = std::sync::Arc::new(std::sync::Mutex::new(""));
        let socket = std::net::UdpSocket::bind("127.0.0.1:53").unwrap();
        let of_server = zone.clone();
        std::thread::spawn(move || {
            let mut packet = [0; 1_500];
            while let Ok((length, peer)) = socket.recv_from(&mut packet) {
                let zone = *of_server.lock().unwrap();
                let answer = |question: &Query, response: &mut Message| answer_from(zone, question, response);
                if let Some(response) = support::dns_server::respond(&answer, &packet[..length]) {
                    socket.send_to(&response, peer).unwrap();
                }
            }
        });
        for (conf, name, records) in SEARCHES {
            *zone.lock().unwrap() = records;
            std::fs::write(namespace.etc().join("resolv.conf"), format!("nameserver 127.0.0.1\n{conf}\n")).unwrap();
            let [theirs, ours] = by_both_resolvers(&namespace.name, name);
            assert_eq!(ours, theirs, "{conf:?}, {name}: {records}");
        }
    });
    thread.join().unwrap();
}

fn answer_from(zone: &str, question: &Query, response: &mut Message) {
    let name = question.name().to_ascii().to_lowercase();
    let name = name.trim_end_matches('.');
    let mut exists = false;
    for record in zone.split(", ") {
        let [owner, kind, value]: [&str; 3] = record.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let is_meant = owner == name || owner.strip_prefix('*').is_some_and(|end| name.ends_with(end));
        exists |= is_meant;
        if !is_meant || kind != question.query_type().to_string() {
            continue;
        }
        match value {
            "servfail" => response.metadata.response_code = ResponseCode::ServFail,
            "refused" => response.metadata.response_code = ResponseCode::Refused,
            last => {
                let address = if kind == "A" { format!("192.0.2.{last}") } else { format!("2001:db8::{last}") };
                let address = address.parse().unwrap();
                support::dns_server::add_address(response, question, question.name(), address, 60);
            }
        }
    }
    if !exists {
        response.metadata.response_code = ResponseCode::NXDomain;
    }
}

/// Returns the addresses that getaddrinfo and speeddial find in a namespace, which has a resolv.conf of its own.
fn by_both_resolvers(namespace: &str, name: &str) -> [String; 2] {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(std::env::current_exe().unwrap());
    let test = support::test_path(module_path!(), "a_given_name_is_looked_up_by_getaddrinfo_and_by_the_client");
    command.args(["--exact", &*test, "--nocapture"]);
    let output = command.env("SPEEDDIAL_LOOKUP", name).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let found = |who: &str| text.lines().find_map(|line| line.strip_prefix(who).map(str::to_owned));
    ["getaddrinfo: ", "speeddial: "].map(|who| found(who).unwrap_or_else(|| panic!("no line {who:?} in {text}")))
}

/// The test above runs this one in its namespace. Without that it has no name and passes.
#[test]
fn a_given_name_is_looked_up_by_getaddrinfo_and_by_the_client() {
    let Ok(name) = std::env::var("SPEEDDIAL_LOOKUP") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let theirs = tokio::net::lookup_host((&*name, 0)).await.into_iter().flatten().map(|address| address.ip());
        let resolver = HickoryResolver::system();
        let (v4, v6) = tokio::join!(resolver.resolve(&name, Family::V4), resolver.resolve(&name, Family::V6));
        let ours = [v4, v6].into_iter().flatten().flat_map(|answer| answer.addresses().to_vec());
        let (theirs, ours): (BTreeSet<_>, BTreeSet<_>) = (theirs.collect(), ours.collect());
        println!("\ngetaddrinfo: {theirs:?}\nspeeddial: {ours:?}");
    });
}

#[test]
fn why_names_the_search_list() {
    let thread = std::thread::spawn(|| {
        let Ok(namespace) = Namespace::enter("searched") else {
            eprintln!("SKIPPED: no network namespace can be made");
            return;
        };
        std::fs::create_dir_all(namespace.etc()).unwrap();
        std::fs::write(namespace.etc().join("resolv.conf"), "nameserver 127.0.0.1\nsearch a.test b.test\n").unwrap();
        let dns = std::net::UdpSocket::bind("127.0.0.1:53").unwrap();
        std::thread::spawn(move || answer_slowly(&dns));
        let server = support::ok_server();
        let url = format!("http://db:{}/", server.address().port());
        let test = support::test_path(module_path!(), "a_given_url_is_asked_for_and_why_is_printed");
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace.name]).arg(std::env::current_exe().unwrap());
        let output = command.args(["--exact", &*test, "--nocapture"]).env("SPEEDDIAL_WHY", url).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let why = "dns-searched\nwhy: ";
        assert!(text.contains(why), "{text}");
        let reason = " were spent in DNS: a name that the search list makes of db was asked for in vain; ";
        assert!(text.contains(reason), "{text}");
    });
    thread.join().unwrap();
}

/// Answers 100 ms after each query for a name below `a.test` that it does not exist, and other queries at once with 127.0.0.1.
fn answer_slowly(socket: &std::net::UdpSocket) {
    let answer = |question: &Query, response: &mut Message| {
        if question.name().to_ascii().to_lowercase().ends_with(".a.test.") {
            std::thread::sleep(std::time::Duration::from_millis(100));
            response.metadata.response_code = ResponseCode::NXDomain;
        } else {
            let address = std::net::Ipv4Addr::LOCALHOST.into();
            support::dns_server::add_address(response, question, question.name(), address, 60);
        }
    };
    let mut packet = [0; 1_500];
    while let Ok((length, peer)) = socket.recv_from(&mut packet) {
        if let Some(response) = support::dns_server::respond(&answer, &packet[..length]) {
            socket.send_to(&response, peer).unwrap();
        }
    }
}

/// The test above runs this one in its namespace. Without that it has no URL and passes.
#[test]
fn a_given_url_is_asked_for_and_why_is_printed() {
    let Ok(url) = std::env::var("SPEEDDIAL_WHY") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = speeddial::Client::builder().no_proxy().build().unwrap();
        let response = client.get(url).send().await.unwrap();
        let why = response.timings().why();
        println!("\n{}\nwhy: {why}", why.main().unwrap().cause);
    });
}
