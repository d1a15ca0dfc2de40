//! The address of an API server: `https://host:port`.

use http::Uri;

/// A URL taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    /// Port, 443 when the URL names none.
    pub port: u16,
    /// Path before every request, without the final slash; mostly empty.
    pub path: String,
}

impl ServerAddress {
    /// Reads an https URL. The error says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|e: http::uri::InvalidUri| e.to_string())?;
        if uri.scheme_str() != Some("https") {
            return Err("it does not begin with https://".into());
        }
        let authority = uri.authority().map_or("", |a| a.as_str());
        if authority.contains('@') {
            return Err("it holds a user name".into());
        }
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host).to_ascii_lowercase();
        if host.is_empty() {
            return Err("it names no host".into());
        }
        if uri.query().is_some() {
            return Err("it has a query".into());
        }
        let port = uri.port_u16().unwrap_or(443);
        Ok(Self { host, port, path: uri.path().trim_end_matches('/').to_owned() })
    }

    /// `host:port`, IPv6 in brackets.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The URL again, always with its port.
    pub fn url(&self) -> String {
        format!("https://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_back() {
        let address = ServerAddress::parse("https://API.example.org/k8s/").unwrap();
        assert_eq!((address.host.as_str(), address.port, address.path.as_str()), ("api.example.org", 443, "/k8s"));
        assert_eq!(address.url(), "https://api.example.org:443/k8s");
        let address = ServerAddress::parse("https://[2001:db8::1]:6443").unwrap();
        assert_eq!((address.host.as_str(), address.url().as_str()), ("2001:db8::1", "https://[2001:db8::1]:6443"));
    }

    #[test]
    fn what_is_not_an_api_server_is_refused() {
        for url in ["http://a:6443", "a:6443", "https://", "https://u:p@a", "https://a/?x=1", "nonsense", ""] {
            assert!(ServerAddress::parse(url).is_err(), "{url}");
        }
    }
}
