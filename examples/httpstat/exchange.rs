//! One request and what is told of it.

use speeddial::http::{HeaderMap, Method, StatusCode, Version};
use speeddial::trace::Timings;
use speeddial::url::Url;
use speeddial::{Client, Error, Response};
use speeddial_inspect::HarEntry;

use crate::options::Options;

/// A request that is over.
pub(crate) struct Told {
    /// The number of the request among those to its URL, from 1.
    pub(crate) number: u32,
    /// The URL that was asked for, without credentials.
    pub(crate) url: String,
    pub(crate) outcome: Result<(StatusCode, Version, usize), Error>,
    pub(crate) timings: Option<Timings>,
    method: Method,
    sent_headers: HeaderMap,
    /// The URL of the last request, and the headers of its response.
    answer: Option<(Url, HeaderMap)>,
}

pub(crate) async fn exchange(options: &Options, client: &Client, url: &str, number: u32) -> Told {
    let implied = if options.data.is_some() { Method::POST } else { Method::GET };
    let method = options.method.clone().unwrap_or(implied);
    let sent_headers: HeaderMap = options.headers.iter().cloned().collect();
    let mut request = client.request(method.clone(), url);
    for (name, value) in &options.headers {
        request = request.header(name, value);
    }
    if let Some(data) = &options.data {
        request = request.body(data.clone());
    }
    let (outcome, timings, answer) = match request.send().await {
        Ok(response) => read(response).await,
        Err(error) => {
            let timings = error.timings().cloned();
            (Err(error), timings, None)
        }
    };
    Told { number, url: without_credentials(url), outcome, timings, method, sent_headers, answer }
}

type Read = (Result<(StatusCode, Version, usize), Error>, Option<Timings>, Option<(Url, HeaderMap)>);

async fn read(response: Response) -> Read {
    let (status, version, handle) = (response.status(), response.version(), response.timings_handle());
    let answer = (response.url().clone(), response.headers().clone());
    let outcome = response.bytes().await.map(|body| (status, version, body.len()));
    (outcome, Some(handle.timings()), Some(answer))
}

impl Told {
    /// Returns a name for a picture.
    pub(crate) fn name(&self) -> String {
        let url = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        format!("#{} {url}", self.number)
    }

    /// Returns the response in a few words, or the error.
    pub(crate) fn result(&self) -> String {
        match &self.outcome {
            Ok((status, version, bytes)) => format!("{version:?} {status}, {bytes} bytes"),
            Err(error) => format!("{error:#}"),
        }
    }

    /// Returns the request for a HAR document; `None` if it never began.
    pub(crate) fn har_entry(&self) -> Option<HarEntry> {
        let timings = self.timings.as_ref()?;
        let entry = match &self.answer {
            Some((url, headers)) => HarEntry::new(&self.method, url, timings).response_headers(headers),
            None => HarEntry::new(&self.method, &Url::parse(&self.url).ok()?, timings),
        };
        Some(entry.request_headers(&self.sent_headers))
    }
}

/// Returns the URL without credentials, which may stand before the last `@`.
fn without_credentials(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else {
        return url.rsplit('@').next().unwrap_or_default().to_owned();
    };
    let _ = (parsed.set_username(""), parsed.set_password(None));
    parsed.into()
}
