//! Formats amounts of money for a language: the number of decimals (ISO 4217), the sign, and its side (CLDR's standard
//! pattern). This table is our own, because ICU4X's is not stable yet. Other currencies are written with their code
//! after the amount.

/// Whether the text is three capital letters. Whether the currency exists is not checked.
pub fn is_code(code: &str) -> bool {
    code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase())
}

pub fn decimals(code: &str) -> i16 {
    match code {
        "BIF" | "CLP" | "DJF" | "GNF" | "ISK" | "JPY" | "KMF" | "KRW" | "PYG" | "RWF" | "UGX" | "UYI"
        | "VND" | "VUV" | "XAF" | "XOF" | "XPF" => 0,
        "BHD" | "IQD" | "JOD" | "KWD" | "LYD" | "OMR" | "TND" => 3,
        _ => 2,
    }
}

/// Adds the currency's sign to an amount that is already formatted for the language.
pub fn written(amount: &str, negative: bool, code: &str, language: &str, region: Option<&str>) -> String {
    let sign = sign(code, language, region);
    let minus = if negative { "-" } else { "" };
    match side(language, region) {
        Side::Behind => format!("{minus}{amount} {sign}"),
        Side::Before => {
            // A sign that ends in a letter needs a space before the amount.
            let space = if sign.ends_with(char::is_alphabetic) { " " } else { "" };
            format!("{minus}{sign}{space}{amount}")
        }
        Side::BeforeAndApart => format!("{minus}{sign} {amount}"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    BeforeAndApart,
    Behind,
}

fn side(language: &str, region: Option<&str>) -> Side {
    match (language, region) {
        ("pt", Some("PT" | "AO" | "CH" | "CV" | "GQ" | "GW" | "LU" | "MO" | "MZ" | "ST" | "TL"))
        | ("es", Some("ES" | "GQ" | "EA" | "IC" | "PH") | None) => Side::Behind,
        ("de", Some("AT" | "CH" | "LI"))
        | ("it", Some("CH"))
        | ("es", Some("AR" | "BO" | "CO" | "PY" | "UY" | "VE"))
        | ("id" | "nl" | "pt", _) => Side::BeforeAndApart,
        ("en" | "es" | "fil" | "hi" | "ja" | "ko" | "ms" | "th" | "tr" | "zh", _) => Side::Before,
        _ => Side::Behind,
    }
}

fn sign<'a>(code: &'a str, language: &str, region: Option<&str>) -> &'a str {
    match (code, language) {
        ("EUR", _) => "€",
        ("GBP", _) => "£",
        ("BRL", _) => "R$",
        ("INR", _) => "₹",
        ("ILS", _) => "₪",
        ("KRW", _) => "₩",
        ("UAH", "uk") => "₴",
        ("TRY", "tr") => "₺",
        ("PLN", "pl") => "zł",
        ("CZK", "cs") => "Kč",
        ("RUB", "ru") => "₽",
        ("SEK", "sv") | ("NOK", "nb" | "nn" | "no") => "kr",
        ("DKK", "da") => "kr.",
        ("JPY", "ja") => "￥",
        ("CNY", "zh") => "¥",
        ("JPY", "en" | "it" | "fr" | "de" | "es" | "pt" | "nl") if region != Some("CN") => "¥",
        // `$` alone means the dollar of the reader's region.
        ("USD", "en") if !matches!(region, Some("CA" | "AU" | "NZ" | "SG" | "HK")) => "$",
        ("USD", "de" | "fr" | "nl") => "$",
        ("USD", "pt" | "es" | "zh" | "en") => "US$",
        ("CAD", "en" | "fr") if region == Some("CA") => "$",
        ("AUD", "en") if region == Some("AU") => "$",
        ("NZD", "en") if region == Some("NZ") => "$",
        ("MXN", "es") if region == Some("MX") => "$",
        ("ARS", "es") if region == Some("AR") => "$",
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sign_stands_where_the_language_puts_it() {
        for (language, region, code, expected) in [
            ("it", None, "EUR", "12,50 €"),
            ("en", None, "EUR", "€12,50"),
            ("en", None, "CHF", "CHF 12,50"),
            ("pt", Some("BR"), "BRL", "R$ 12,50"),
            ("pt", None, "EUR", "€ 12,50"),
            ("pt", Some("PT"), "EUR", "12,50 €"),
            ("de", Some("AT"), "EUR", "€ 12,50"),
            ("it", None, "USD", "12,50 USD"),
            ("en", Some("CA"), "USD", "US$12,50"),
            ("es", Some("MX"), "MXN", "$12,50"),
            ("pl", None, "PLN", "12,50 zł"),
            ("xx", None, "XXX", "12,50 XXX"),
        ] {
            assert_eq!(
                written("12,50", false, code, language, region),
                expected,
                "{language} {region:?} {code}"
            );
        }
        assert_eq!(written("1", true, "EUR", "en", None), "-€1");
        assert_eq!(written("1", true, "EUR", "it", None), "-1 €");
    }
}
