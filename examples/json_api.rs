//! A JSON API: a base URL, a body, a query, and the errors for a wrong document and a wrong status.
//!
//! `cargo run --features json,query --example json_api`; it asks `practice_server`, or the URL that it is given.

#![allow(clippy::print_stdout, reason = "an example prints")]

use speeddial::Client;

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Item {
    name: String,
    size: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or("http://127.0.0.1:8080".to_owned());
    let client = Client::builder().base_url(format!("{server}/v1/")).user_agent("json_api/1.0").build()?;

    let nut = Item { name: "nut".to_owned(), size: 3 };
    let created: Item =
        client.post("items").bearer_auth("token").json(&nut).send().await?.error_for_status()?.json().await?;
    println!("created {created:?}");

    // The second item of the server's answer has a word for a size: the error names the place in the document.
    let items = client.get("items").query(&[("page", 1)]).send().await?.error_for_status()?;
    match items.json::<Vec<Item>>().await {
        Ok(items) => println!("{items:?}"),
        Err(error) => println!("{error:#}"),
    }

    // The error of a status has the start of the body.
    match client.get("nothing").send().await?.error_for_status() {
        Ok(response) => println!("{}", response.text().await?),
        Err(error) => println!("{error:#}"),
    }
    Ok(())
}
