//! Configuration files and routes of a machine, in a network namespace of its own.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::Command;

use hickory_proto::op::{Message, Query, ResponseCode};

use support::namespace::Namespace;

/// The setups: a shell command that prepares the files, the URL, and the problems that the report finds.
const SETUPS: [(&str, &str, &str); 8] = [
    ("rm /etc/resolv.conf", "http://api.test/", "[ResolvConfUnreadable]"),
    ("rm /etc/resolv.conf", "http://localhost:1/", "[AddressRefuses]"),
    ("echo > /etc/resolv.conf", "http://api.test/", "[NoDnsServer]"),
    ("echo nameserver one > /etc/resolv.conf", "http://192.0.2.1/", "[AddressWithoutRoute]"),
    ("echo '127.0.0.1 api.test' > /etc/hosts", "http://api.test:1/", "[AddressRefuses]"),
    (
        "printf 'search x..y\\n' > /etc/resolv.conf; echo '127.0.0.1 api.test' > /etc/hosts",
        "http://api.test:1/",
        "[ResolvConfWord, AddressRefuses]",
    ),
    ("export http_proxy=ftp://me:secret@proxy.test", "http://192.0.2.1/", "[ProxyInvalid]"),
    ("export http_proxy=http://me:secret@127.0.0.1:1", "http://192.0.2.1/", "[ProxyUnreachable]"),
];

/// The setups beside a DNS server that has 127.0.0.1 for `api.a.test` and fails for all other names.
const SETUPS_WITH_DNS: [(&str, &str, &str); 5] = [
    ("echo search a.test b.test >> /etc/resolv.conf", "http://api:1/", "[AddressRefuses]"),
    ("echo search b.test a.test >> /etc/resolv.conf", "http://api:1/", "[DnsServerFails, AddressRefuses]"),
    ("mkdir /etc/hosts", "http://api.a.test:1/", "[HostsUnreadable, AddressRefuses]"),
    ("mkdir /etc/hosts", "http://localhost:1/", "[AddressRefuses]"),
    // A machine with IPv4 alone: that ::1 cannot be connected to is none of its problems. This stays so, and is the last setup.
    ("echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6", "http://localhost:1/", "[AddressRefuses]"),
];

#[test]
fn files_and_routes_of_this_machine_are_named() {
    let thread = std::thread::spawn(|| {
        let Ok(namespace) = Namespace::enter("doctor") else {
            eprintln!("SKIPPED: no network namespace can be made");
            return;
        };
        check_all(&namespace, &SETUPS);
        serve_dns();
        check_all(&namespace, &SETUPS_WITH_DNS);
    });
    thread.join().unwrap();
}

fn check_all(namespace: &Namespace, setups: &[(&str, &str, &str)]) {
    for (prepare, url, expected) in setups {
        let Some(found) = examine_in(&namespace.name, prepare, url) else {
            eprintln!("SKIPPED: /etc cannot be replaced in a namespace");
            return;
        };
        assert_eq!(found, *expected, "{prepare}, {url}");
    }
}

/// Starts a DNS server at port 53 of this namespace.
fn serve_dns() {
    let (udp, tcp) = (UdpSocket::bind("127.0.0.1:53").unwrap(), TcpListener::bind("127.0.0.1:53").unwrap());
    support::dns_tcp::serve(tcp, answer);
    std::thread::spawn(move || {
        let mut packet = [0; 1_500];
        while let Ok((length, peer)) = udp.recv_from(&mut packet) {
            if let Some(response) = support::dns_server::respond(&answer, &packet[..length]) {
                udp.send_to(&response, peer).unwrap();
            }
        }
    });
}

fn answer(question: &Query, response: &mut Message) {
    if question.name().to_ascii().to_lowercase() == "api.a.test." {
        support::dns_server::add_address(response, question, question.name(), Ipv4Addr::LOCALHOST.into(), 60);
    } else {
        response.metadata.response_code = ResponseCode::ServFail;
    }
}

/// Returns the problems that a client finds in a namespace, with an /etc of its own. Returns `None` if none can be mounted.
fn examine_in(namespace: &str, prepare: &str, url: &str) -> Option<String> {
    let test = support::test_path(module_path!(), "a_given_origin_is_examined");
    let script = format!(
        "mount -t tmpfs none /etc || exit 77; echo nameserver 127.0.0.1 > /etc/resolv.conf; {prepare}; \
         exec \"$0\" --exact {test} --nocapture"
    );
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "sh", "-c", &script]).arg(std::env::current_exe().unwrap());
    for variable in ["http_proxy", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"] {
        command.env_remove(variable);
    }
    let output = command.env("SPEEDDIAL_EXAMINE", url).output().unwrap();
    if output.status.code() == Some(77) {
        return None;
    }
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("secret"), "{text}");
    let found = text.lines().find_map(|line| line.strip_prefix("problems: ").map(str::to_owned));
    Some(found.unwrap_or_else(|| panic!("no problems in {text}{}", String::from_utf8_lossy(&output.stderr))))
}

/// The test above runs this one in its namespace. Without that it has no URL and passes.
#[test]
fn a_given_origin_is_examined() {
    let Ok(url) = std::env::var("SPEEDDIAL_EXAMINE") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = speeddial::Client::builder().build().unwrap();
    let report = runtime.block_on(client.doctor(url)).unwrap();
    let problems = report.findings().iter().map(|finding| finding.problem());
    let problems: Vec<_> = problems.filter(|problem| !problem.is_slow()).collect();
    println!("\nproblems: {problems:?}\n{report}");
}
