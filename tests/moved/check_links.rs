//! A program over lychee-lib: prints for each URL that it is given whether there is something. The test compiles it with the copy of the
//! crate.

#[tokio::main]
async fn main() {
    let client = lychee_lib::ClientBuilder::builder().build().client().unwrap();
    for url in std::env::args().skip(1) {
        let response = client.check(url.as_str()).await.unwrap();
        println!("{url} {}", response.status().is_success());
    }
}
