//! The cluster's certificate authority: base64 of PEM certificates.

use super::Fault;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;

const FIX: &str = "write what kubeconfig files have as certificate-authority-data: base64 -w0 < ca.crt";

/// The certificates as PEM in one form (64 columns, no text between them).
///
/// Their content is not looked at beyond being one DER sequence each; who makes a connection does that.
pub fn decode(text: &str) -> Result<String, Fault> {
    let compact: String = text.split_ascii_whitespace().collect();
    if text.contains("-----BEGIN") {
        return Err(Fault::new("it is PEM, not the base64 of it", FIX));
    }
    let Ok(bytes) = STANDARD.decode(&compact) else {
        return Err(Fault::new("it is no base64", FIX));
    };
    let Ok(pem) = String::from_utf8(bytes) else {
        return Err(Fault::new("it is no PEM after decoding (DER perhaps)", "convert it: openssl x509 -inform der"));
    };
    let mut out = String::new();
    let mut rest = pem.as_str();
    while let Some((_, block)) = rest.split_once("-----BEGIN ") {
        let Some((label, body)) = block.split_once("-----") else { break };
        let end = format!("-----END {label}-----");
        let Some((body, after)) = body.split_once(&end) else {
            return Err(Fault::new(format!("a PEM block {label:?} has no end"), FIX));
        };
        if label.contains("PRIVATE KEY") {
            let fix = "write the certificates alone, and take that key as known to others now";
            return Err(Fault::new("it contains a private key", fix));
        }
        if matches!(label, "CERTIFICATE" | "X509 CERTIFICATE" | "TRUSTED CERTIFICATE") {
            append(body, &mut out)?;
        }
        rest = after;
    }
    if out.is_empty() { Err(Fault::new("it has no certificate in it", FIX)) } else { Ok(out) }
}

fn append(body: &str, out: &mut String) -> Result<(), Fault> {
    let compact: String = body.split_ascii_whitespace().collect();
    let der = STANDARD.decode(&compact).map_err(|_| Fault::new("a certificate in it is damaged", FIX))?;
    if !is_one_sequence(&der) {
        return Err(Fault::new("a certificate in it is cut off or damaged", FIX));
    }
    out.push_str("-----BEGIN CERTIFICATE-----\n");
    let encoded = STANDARD.encode(&der);
    for line in encoded.as_bytes().chunks(64) {
        let _ = writeln!(out, "{}", String::from_utf8_lossy(line));
    }
    out.push_str("-----END CERTIFICATE-----\n");
    Ok(())
}

/// DER (X.690): tag SEQUENCE, and a length that is exactly what follows.
fn is_one_sequence(der: &[u8]) -> bool {
    let [0x30, first, rest @ ..] = der else { return false };
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let (size, rest) = rest.split_at(rest.len().min(usize::from(first & 0x7f)));
            (size.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return false,
    };
    length > 0 && length == rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";

    fn encoded(pem: &str) -> String {
        STANDARD.encode(pem)
    }

    #[test]
    fn certificates_come_in_one_form() {
        let untidy = format!("subject=x\r\n{}junk\n{PEM}", PEM.replace('\n', "\r\n"));
        assert_eq!(decode(&encoded(&untidy)).unwrap(), PEM.repeat(2));
        let wrapped: Vec<String> =
            encoded(PEM).as_bytes().chunks(20).map(|c| String::from_utf8(c.to_vec()).unwrap()).collect();
        assert_eq!(decode(&wrapped.join("\n")).unwrap(), PEM);
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        let key = "-----BEGIN EC PRIVATE KEY-----\nMAMCAQE=\n-----END EC PRIVATE KEY-----\n";
        for (text, word) in [
            (PEM.to_owned(), "is PEM"),
            ("%%%".to_owned(), "base64"),
            (String::new(), "no certificate"),
            (encoded("hello"), "no certificate"),
            (STANDARD.encode([0x30, 0x82, 0xff]), "no PEM"),
            (encoded(&PEM.replace("-----END CERTIFICATE-----", "")), "no end"),
            (encoded(&PEM.replace("MAMCAQE=", "MAMCAQ==")), "cut off"),
            (encoded(&PEM.replace("MAMCAQE=", "M!")), "damaged"),
            (encoded(&format!("{PEM}{key}")), "private key"),
        ] {
            let fault = decode(&text).unwrap_err();
            assert!(fault.what.contains(word), "{word}: {fault}");
        }
    }
}
