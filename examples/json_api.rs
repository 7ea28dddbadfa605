//! An API that speaks JSON: a query, a body, and what errors say.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod support;

use http_body_util::{BodyExt, Full};
use hyper::Response;
use speeddial::Client;

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Item {
    name: String,
    size: u32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = support::serve(|request| async move {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
        match (head.method.as_str(), head.uri.path()) {
            ("POST", "/v1/items") => Response::new(Full::new(body)),
            ("GET", "/v1/items") => {
                Response::new(Full::from(r#"[{"name":"nut","size":3},{"name":"bolt","size":"large"}]"#))
            }
            _ => {
                let mut response = Response::new(Full::from(r#"{"error":"no such thing"}"#));
                *response.status_mut() = hyper::StatusCode::NOT_FOUND;
                response
            }
        }
    })
    .await?;
    let client = Client::builder().base_url(format!("http://{address}/v1/")).user_agent("json_api/1.0").build()?;

    let nut = Item { name: "nut".to_owned(), size: 3 };
    let made: Item =
        client.post("items").bearer_auth("token").json(&nut).send().await?.error_for_status()?.json().await?;
    println!("made {made:?}");

    let items = client.get("items").query(&[("page", 1)]).send().await?.error_for_status()?;
    let error = items.json::<Vec<Item>>().await.expect_err("the second item's size is a word");
    println!("{error}");

    let error = client.get("nothing").send().await?.error_for_status().expect_err("there is nothing");
    println!("{error}");
    Ok(())
}
