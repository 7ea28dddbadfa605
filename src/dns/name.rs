//! The normal form of names.

use std::borrow::Cow;

/// Returns a name as URLs and queries have it: in lower case, in its ASCII (punycode) form. Allocates only if the name
/// changes.
pub(super) fn normalized(name: &str) -> Cow<'_, str> {
    // Without a branch for each byte, which takes half of the instructions.
    let changes = name.bytes().fold(false, |changes, byte| changes | byte.is_ascii_uppercase() | !byte.is_ascii());
    if !changes {
        return Cow::Borrowed(name);
    }
    match url::Host::parse(name) {
        Ok(url::Host::Domain(ascii)) if !name.is_ascii() => Cow::Owned(ascii),
        // The name is in ASCII, or is not one that a URL can have.
        _ => Cow::Owned(name.to_ascii_lowercase()),
    }
}

/// Returns the form in which names are compared that have addresses of the user: [`normalized`], without the dot at the end, which only keeps
/// DNS from searching.
pub(crate) fn comparable(name: &str) -> Cow<'_, str> {
    match normalized(name) {
        Cow::Borrowed(name) => Cow::Borrowed(name.strip_suffix('.').unwrap_or(name)),
        Cow::Owned(mut name) => {
            name.truncate(name.strip_suffix('.').unwrap_or(&name).len());
            Cow::Owned(name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_lower_case_and_in_punycode() {
        assert!(matches!(normalized("api.test"), Cow::Borrowed("api.test")));
        assert_eq!(normalized("API.test"), "api.test");
        assert_eq!(normalized("BÜCHER.test"), "xn--bcher-kva.test");
        assert_eq!([comparable("API.test."), comparable("api.test"), comparable("api.test.")], ["api.test"; 3]);
        assert_eq!(comparable("BÜCHER.test."), "xn--bcher-kva.test");
        assert_eq!(normalized("my_Name"), "my_name", "a name that no URL can have is only put into lower case");
    }
}
