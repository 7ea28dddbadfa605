//! The lifetime of a cookie: `Max-Age` and `Expires` of a `Set-Cookie` header (RFC 6265bis §5.6.1, §5.6.2). A core.
//!
//! The cookie crate reads dates in four formats. Servers send many more, often to delete a cookie, and one that is not understood
//! would keep the cookie.

use std::fmt;
use std::time::{Duration, SystemTime};

use cookie_store::RawCookie;
use http::HeaderValue;

use crate::cookie::attributes;

/// Returns the last `Max-Age` of a `Set-Cookie` header that is a number; zero if that is negative.
pub(super) fn max_age(header: &str) -> Option<Duration> {
    values(header, "max-age").filter_map(parse_max_age).last()
}

/// Returns the last `Expires` of a `Set-Cookie` header that is a date. A date before 1970 is the start of 1970.
pub(super) fn expires(header: &str) -> Option<SystemTime> {
    values(header, "expires").filter_map(parse_date).last()
}

/// Returns the values of an attribute, in the order of the header.
fn values<'a>(header: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let attributes = header.split(';').skip(1).filter_map(|attribute| attribute.split_once('='));
    attributes.filter(move |(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn parse_max_age(text: &str) -> Option<Duration> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if digits.len() < text.len() {
        return Some(Duration::ZERO);
    }
    Some(Duration::from_secs(digits.parse().unwrap_or(u64::MAX)))
}

/// The parts of a date, as far as they were found.
#[derive(Default)]
struct Date {
    time: Option<(u64, u64, u64)>,
    day: Option<u64>,
    month: Option<u64>,
    year: Option<u64>,
}

/// Parses a date as browsers do (RFC 6265bis §5.1.1): the first time, day, month and year in the text, in any order and whatever
/// is between them. The time zone is taken to be UTC.
fn parse_date(text: &str) -> Option<SystemTime> {
    let mut date = Date::default();
    for token in text.split(is_delimiter).filter(|token| !token.is_empty()) {
        date.take(token);
    }
    let (hour, minute, second) = date.time?;
    let year = match date.year? {
        year @ 0..=69 => year + 2000,
        year @ 70..=99 => year + 1900,
        year => year,
    };
    let (month, day) = (date.month?, date.day?);
    if year < 1601 || day == 0 || day > days_of(year, month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let Some(days) = days_since_1970(year, month, day) else { return Some(SystemTime::UNIX_EPOCH) };
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

impl Date {
    /// Uses a token as the first part that is missing and that it can be.
    fn take(&mut self, token: &str) {
        if self.time.is_none()
            && let Some(time) = parse_time(token)
        {
            self.time = Some(time);
        } else if self.day.is_none()
            && let Some(day) = leading_number(token, 1, 2)
        {
            self.day = Some(day);
        } else if self.month.is_none()
            && let Some(month) = parse_month(token)
        {
            self.month = Some(month);
        } else if self.year.is_none()
            && let Some(year) = leading_number(token, 2, 4)
        {
            self.year = Some(year);
        }
    }
}

/// Returns true for the characters between the parts of a date: all ASCII but letters, digits and colons.
fn is_delimiter(c: char) -> bool {
    c.is_ascii() && !c.is_ascii_alphanumeric() && c != ':'
}

/// Parses the number that a token begins with, if it has that many digits. Something else may follow.
fn leading_number(token: &str, least: usize, most: usize) -> Option<u64> {
    let digits = token.bytes().take_while(u8::is_ascii_digit).count();
    if digits < least || digits > most {
        return None;
    }
    token[..digits].parse().ok()
}

/// Parses `hour:minute:second`.
fn parse_time(token: &str) -> Option<(u64, u64, u64)> {
    let mut parts = token.splitn(3, ':');
    let hour = whole_number(parts.next()?)?;
    let minute = whole_number(parts.next()?)?;
    let second = leading_number(parts.next()?, 1, 2)?;
    Some((hour, minute, second))
}

/// Parses a number of one or two digits, behind which nothing else may follow.
fn whole_number(token: &str) -> Option<u64> {
    let is_short = matches!(token.len(), 1 | 2);
    leading_number(token, 1, 2).filter(|_| is_short && token.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the number of the month, from 1, whose English name has the token's first three letters.
fn parse_month(token: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let start = token.get(..3)?;
    let index = MONTHS.iter().position(|month| month.eq_ignore_ascii_case(start))?;
    Some(index as u64 + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Returns the number of days of a month.
fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the days from the start of 1970 to a date; `None` if the date is earlier.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let years_before = year.checked_sub(1970)?;
    let leaps_until = |year: u64| year / 4 - year / 100 + year / 400;
    let leap_days = leaps_until(year - 1) - leaps_until(1969);
    let months: u64 = (1..month).map(|month| days_of(year, month)).sum();
    Some(years_before * 365 + leap_days + months + day - 1)
}

/// A cookie that a response sets, as its `Set-Cookie` header has it. See [`Response::cookies`](crate::Response::cookies).
///
/// ```no_run
/// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
/// let response = client.get("http://api.example.com/login").send().await?;
/// for cookie in response.cookies() {
///     println!("{} lasts for {:?}", cookie.name(), cookie.max_age());
/// }
/// # Ok(()) }
/// ```
pub struct Cookie<'a> {
    raw: RawCookie<'a>,
    max_age: Option<Duration>,
    expires: Option<SystemTime>,
}

impl<'a> Cookie<'a> {
    /// Parses a `Set-Cookie` header. Returns `None` if it is not UTF-8, or has no name.
    pub(crate) fn parse(header: &'a HeaderValue) -> Option<Self> {
        let text = str::from_utf8(header.as_bytes()).ok()?;
        let raw = RawCookie::parse(text).ok()?;
        Some(Self { raw, max_age: attributes::max_age(text), expires: attributes::expires(text) })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.raw.name()
    }

    /// Returns the value as it was sent, with quotes if it has any.
    pub fn value(&self) -> &str {
        self.raw.value()
    }

    /// Returns true if the cookie is not for scripts of a page (`HttpOnly`).
    pub fn http_only(&self) -> bool {
        self.raw.http_only() == Some(true)
    }

    /// Returns true if the cookie is for https only (`Secure`).
    pub fn secure(&self) -> bool {
        self.raw.secure() == Some(true)
    }

    /// Returns true if `SameSite` is `Lax`.
    pub fn same_site_lax(&self) -> bool {
        self.raw.same_site().is_some_and(|same_site| same_site.is_lax())
    }

    /// Returns true if `SameSite` is `Strict`.
    pub fn same_site_strict(&self) -> bool {
        self.raw.same_site().is_some_and(|same_site| same_site.is_strict())
    }

    /// Returns the `Path` attribute, if there is one.
    pub fn path(&self) -> Option<&str> {
        self.raw.path()
    }

    /// Returns the `Domain` attribute without a leading dot, if there is one.
    pub fn domain(&self) -> Option<&str> {
        self.raw.domain()
    }

    /// Returns the `Max-Age` attribute, if there is one; zero if it is negative.
    pub fn max_age(&self) -> Option<Duration> {
        self.max_age
    }

    /// Returns the `Expires` attribute, if there is one that is a date. `Max-Age` takes precedence over it.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }
}

impl fmt::Debug for Cookie<'_> {
    // Without the value, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cookie")
            .field("name", &self.name())
            .field("domain", &self.domain())
            .field("path", &self.path())
            .field("secure", &self.secure())
            .field("max_age", &self.max_age)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<u64> {
        parse_date(text).map(|at| at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn dates_are_read_in_every_format_that_servers_send() {
        let at = Some(4_097_949_160); // date -u -d '2099-11-09 23:12:40' +%s
        for text in [
            "Mon, 09 Nov 2099 23:12:40 GMT",
            "Monday, 09-Nov-2099 23:12:40 GMT",
            "Mon Nov  9 23:12:40 2099",
            "Wed, 09 Nov 2099 23:12:40 UTC",
            "mon, 9 november 2099 23:12:40 +0000",
            "9 Nov 2099 23:12:40",
            "23:12:40 2099 9 Nov",
            "\"Mon, 09 Nov 2099 23:12:40 GMT\"",
        ] {
            assert_eq!(seconds(text), at, "{text}");
        }
        assert_eq!(seconds("Thu, 01-Jan-70 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:01 GMT"), Some(1));
        assert_eq!(
            seconds("Mon, 01-Jan-0001 00:00:00 GMT"),
            seconds("Mon, 01-Jan-2001 00:00:00 GMT"),
            "as browsers do"
        );
        assert_eq!(seconds("Sun, 29 Feb 2032 00:00:00 GMT"), Some(1_961_625_600));
        assert_eq!(seconds("Fri, 31 Dec 9999 23:59:59 GMT"), Some(253_402_300_799));
        assert_eq!(seconds("Fri, 31 Dec 1969 23:59:59 GMT"), Some(0), "no time before 1970 is needed");
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "0",
            "-1",
            "Session",
            "Mon, 09 Nov 2099",
            "09 Nov 23:12:40",
            "Sat, 29 Feb 2031 00:00:00 GMT",
            "Mon, 32 Jan 2099 00:00:00 GMT",
            "Mon, 09 Nov 2099 24:00:00 GMT",
            "Mon, 09 Nov 2099 23:60:00 GMT",
            "Mon, 09 Nov 20999 23:12:40 GMT",
            "Mon, 09 Nov 1600 23:12:40 GMT",
            "Mon, 09 é 2099 23:12:40 GMT",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn days_are_counted_as_the_calendar_has_them() {
        let mut expected = 0;
        for year in 1970..2500 {
            for month in 1..=12 {
                for day in 1..=days_of(year, month) {
                    assert_eq!(days_since_1970(year, month, day), Some(expected));
                    expected += 1;
                }
            }
        }
        assert_eq!(expected, 193_579); // echo $(( $(date -u -d 2500-01-01 +%s) / 86400 ))
    }

    #[test]
    fn the_last_max_age_that_is_a_number_counts() {
        let age = |attributes: &str| max_age(&format!("max-age=1{attributes}")).map(|age| age.as_secs());
        assert_eq!(age(""), None, "the first part is the cookie itself");
        assert_eq!(age("; Max-Age=5"), Some(5));
        assert_eq!(age("; MAX-AGE = 5 "), Some(5));
        assert_eq!(age("; max-age=5; max-age=x; max-age="), Some(5));
        assert_eq!(age("; max-age=5; max-age=7"), Some(7));
        assert_eq!(age("; max-age=-1"), Some(0));
        assert_eq!(age("; max-age=+1"), None);
        assert_eq!(age("; max-age=-"), None);
        assert_eq!(age("; max-age=1.5"), None);
        assert_eq!(age("; max-age=99999999999999999999999999"), Some(u64::MAX));
    }
}
