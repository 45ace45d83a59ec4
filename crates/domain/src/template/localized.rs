//! Filters that depend on the reader's language: dates and times in their zone, numbers, plurals, money. ICU4X provides
//! CLDR's language rules, and jiff the time zones.

use std::borrow::Cow;
use std::fmt::Display;

use icu_datetime::fieldsets::{T, YMD};
use icu_datetime::input::{Date, DateTime, Time};
use icu_datetime::{DateTimeFormatter, NoCalendarFormatter};
use icu_decimal::DecimalFormatter;
use icu_decimal::input::{Decimal, SignDisplay};
use icu_locale_core::Locale;
use icu_plurals::{PluralCategory, PluralOperands, PluralRules};
use jiff::civil;
use jiff::tz::TimeZone;
use minijinja::value::{Kwargs, Object, ValueKind};
use minijinja::{Error, State, Value};

use crate::template::currency;
use crate::template::filters::{invalid, missing, text_of};
use crate::template::locale;

/// The variable that holds the [`Reader`]. The space keeps templates from naming it.
pub const READER: &str = " reader";
pub const DEFAULT_LOCALE: &str = "en";
/// Numbers with more digits are refused.
const MAX_DIGITS: usize = 40;
/// Larger timestamps are milliseconds: as seconds they would be thousands of years away.
const MAX_SECONDS: u64 = 100_000_000_000;

/// Filters whose result depends on the reader's locale.
pub const BY_LOCALE: [&str; 6] = ["currency", "date", "datetime", "number", "plural", "time"];
/// Filters whose result also depends on the reader's time zone.
pub const BY_ZONE: [&str; 3] = ["date", "datetime", "time"];

pub fn filters() -> [(&'static str, Value); 6] {
    [
        ("currency", Value::from_function(currency)),
        ("date", Value::from_function(date)),
        ("datetime", Value::from_function(datetime)),
        ("number", Value::from_function(number)),
        ("plural", Value::from_function(plural)),
        ("time", Value::from_function(time)),
    ]
}

/// The properties of a recipient that formatting depends on.
#[derive(Debug)]
pub struct Reader {
    locale: Locale,
    zone: TimeZone,
}

impl Object for Reader {}

impl Reader {
    /// Shortens an invalid locale until a part of it is valid, and falls back to English.
    pub fn new(locale: &str, zone: TimeZone) -> Self {
        let mut tag = locale::normal(locale);
        let locale = loop {
            match (Locale::try_from_str(&tag), tag.rsplit_once('-')) {
                (Ok(locale), _) => break locale,
                (Err(_), Some((shorter, _))) => tag = shorter.to_owned(),
                (Err(_), None) => DEFAULT_LOCALE.clone_into(&mut tag),
            }
        };
        Reader { locale, zone }
    }

    fn of(state: &State) -> Result<std::sync::Arc<Reader>, Error> {
        let reader = state.lookup(READER).and_then(|reader| reader.downcast_object::<Reader>());
        reader.ok_or_else(|| invalid("this filter can only be used after a `|`"))
    }

    fn unable(&self, error: impl Display) -> Error {
        invalid(format!("cannot be formatted in locale `{}`: {error}", self.locale))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Short,
    Medium,
    Long,
}

/// Arguments of a date filter: `date("long", zone="Europe/Rome", or_text=true)`.
#[derive(Debug)]
struct Wish {
    style: Style,
    zone: TimeZone,
    /// Show a value that is no moment unchanged.
    or_text: bool,
}

impl Wish {
    #[expect(clippy::needless_pass_by_value, reason = "MiniJinja gives arguments away")]
    fn new(reader: &Reader, style: Option<&str>, given: Kwargs) -> Result<Self, Error> {
        let named: Option<String> = given.get("style")?;
        let zone: Option<String> = given.get("zone")?;
        let or_text: Option<bool> = given.get("or_text")?;
        given.assert_all_used()?;
        let style = match style.or(named.as_deref()) {
            Some("short") => Style::Short,
            None | Some("medium") => Style::Medium,
            Some("long") => Style::Long,
            Some(_) => return Err(invalid("the style is one of `short`, `medium`, `long`")),
        };
        let zone = match zone {
            None => reader.zone.clone(),
            Some(name) => {
                TimeZone::get(&name).map_err(|_| invalid("the zone is an IANA name such as `Europe/Rome`"))?
            }
        };
        Ok(Wish { style, zone, or_text: or_text.unwrap_or_default() })
    }

    fn instead(&self, value: &Value, error: Error) -> Result<String, Error> {
        if self.or_text && !value.is_undefined() { text_of(value) } else { Err(error) }
    }
}

fn date(state: &State, value: &Value, style: Option<&str>, given: Kwargs) -> Result<String, Error> {
    let reader = Reader::of(state)?;
    let wish = Wish::new(&reader, style, given)?;
    let at = match day(value) {
        Some(date) => Ok(date.to_datetime(civil::Time::midnight())),
        None => moment(value, &wish.zone),
    };
    match at {
        Ok(at) => dated(&reader, wish.style, at, false),
        Err(error) => wish.instead(value, error),
    }
}

fn datetime(state: &State, value: &Value, style: Option<&str>, given: Kwargs) -> Result<String, Error> {
    let reader = Reader::of(state)?;
    let wish = Wish::new(&reader, style, given)?;
    match moment(value, &wish.zone) {
        Ok(at) => dated(&reader, wish.style, at, true),
        Err(error) => wish.instead(value, error),
    }
}

fn dated(reader: &Reader, style: Style, at: civil::DateTime, with_time: bool) -> Result<String, Error> {
    let fields = match style {
        Style::Short => YMD::short(),
        Style::Medium => YMD::medium(),
        Style::Long => YMD::long(),
    };
    let [month, day] = [at.month(), at.day()].map(i8::unsigned_abs);
    let date = Date::try_new_iso(i32::from(at.year()), month, day);
    let date = date.map_err(|_| invalid("not a day of the calendar"))?;
    let at = DateTime { date, time: icu_time(at.time())? };
    let language = (&reader.locale).into();
    if with_time {
        let formatter = DateTimeFormatter::try_new(language, fields.with_time_hm());
        Ok(plain(&formatter.map_err(|error| reader.unable(error))?.format(&at)))
    } else {
        let formatter = DateTimeFormatter::try_new(language, fields);
        Ok(plain(&formatter.map_err(|error| reader.unable(error))?.format(&at)))
    }
}

fn time(state: &State, value: &Value, style: Option<&str>, given: Kwargs) -> Result<String, Error> {
    let reader = Reader::of(state)?;
    let wish = Wish::new(&reader, style, given)?;
    let time = match (clock(value), moment(value, &wish.zone)) {
        (Some(time), _) => time,
        (None, Ok(at)) => at.time(),
        (None, Err(error)) => return wish.instead(value, error),
    };
    // Only the long style shows seconds.
    let fields = if wish.style == Style::Long { T::hms() } else { T::hm() };
    let formatter = NoCalendarFormatter::try_new((&reader.locale).into(), fields)
        .map_err(|error| reader.unable(error))?;
    Ok(plain(&formatter.format(&icu_time(time)?)))
}

/// A time of day without a date, which needs no zone. A value with a date goes to [`moment`], because its offset must
/// not get lost.
fn clock(value: &Value) -> Option<civil::Time> {
    value.as_str().filter(|text| text.as_bytes().get(2) == Some(&b':'))?.parse().ok()
}

/// A date without a time, which needs no zone.
fn day(value: &Value) -> Option<civil::Date> {
    value.as_str().filter(|text| text.len() == "2026-01-21".len())?.parse().ok()
}

/// RFC 3339, or seconds or milliseconds since 1970, in the zone. A time without an offset is local time already.
fn moment(value: &Value, zone: &TimeZone) -> Result<civil::DateTime, Error> {
    let wrong =
        || invalid("not a moment: expected RFC 3339, such as 2026-01-21T19:30:00Z, or seconds since 1970");
    if value.is_undefined() {
        return Err(missing(value));
    }
    let at = if let Some(text) = value.as_str() {
        match text.parse::<jiff::Timestamp>() {
            Ok(at) => at,
            Err(_) => return text.parse::<civil::DateTime>().map_err(|_| wrong()),
        }
    } else {
        let number = value.as_i64().filter(|_| value.kind() == ValueKind::Number).ok_or_else(wrong)?;
        let at = if number.unsigned_abs() <= MAX_SECONDS {
            jiff::Timestamp::from_second(number)
        } else {
            jiff::Timestamp::from_millisecond(number)
        };
        at.map_err(|_| wrong())?
    };
    Ok(at.to_zoned(zone.clone()).datetime())
}

fn icu_time(time: civil::Time) -> Result<Time, Error> {
    let [hour, minute, second] = [time.hour(), time.minute(), time.second()].map(i8::unsigned_abs);
    Time::try_new(hour, minute, second, 0).map_err(|_| invalid("not a time of the day"))
}

/// Replaces special spaces by plain ones: they would reduce an SMS from 160 characters to 70.
fn plain(formatted: &impl Display) -> String {
    formatted.to_string().replace(['\u{202f}', '\u{a0}', '\u{2009}'], " ")
}

/// Formats with the given number of decimals, else with as many as the value has, at most three.
fn number(state: &State, value: &Value, decimals: Option<i16>) -> Result<String, Error> {
    let reader = Reader::of(state)?;
    let mut decimal = exact(value)?;
    match decimals {
        Some(decimals @ 0..=20) => set_decimals(&mut decimal, decimals),
        Some(_) => return Err(invalid("a number has 0 to 20 decimals")),
        None => {
            decimal.round(-3);
            decimal.absolute.trim_end();
        }
    }
    // A negative number that rounds to zero is written without a sign.
    written(&reader, &decimal.with_sign_display(SignDisplay::Negative))
}

fn currency(state: &State, value: &Value, code: &str) -> Result<String, Error> {
    let reader = Reader::of(state)?;
    if !currency::is_code(code) {
        return Err(invalid("a currency is its ISO 4217 code, such as `EUR`"));
    }
    let mut decimal = exact(value)?;
    set_decimals(&mut decimal, currency::decimals(code));
    let amount = written(&reader, &decimal.clone().with_sign_display(SignDisplay::Never))?;
    let negative = decimal.with_sign_display(SignDisplay::Negative).to_string().starts_with('-');
    let (language, region) = (reader.locale.id.language, reader.locale.id.region);
    let region = region.as_ref().map(icu_locale_core::subtags::Region::as_str);
    Ok(currency::written(&amount, negative, code, language.as_str(), region))
}

/// `3 | plural(one="guest", other="guests")`, by the rules of the language.
#[expect(clippy::needless_pass_by_value, reason = "MiniJinja gives arguments away")]
fn plural(state: &State, value: &Value, given: Kwargs) -> Result<Value, Error> {
    let reader = Reader::of(state)?;
    let rules =
        PluralRules::try_new_cardinal((&reader.locale).into()).map_err(|error| reader.unable(error))?;
    let mut count = exact(value)?;
    // A count of 1.0 in JSON is "one guest", not "1.0 guests".
    count.absolute.trim_end();
    let category = match rules.category_for(PluralOperands::from(&count)) {
        PluralCategory::Zero => "zero",
        PluralCategory::One => "one",
        PluralCategory::Two => "two",
        PluralCategory::Few => "few",
        PluralCategory::Many => "many",
        PluralCategory::Other => "other",
    };
    let mut chosen = None;
    for name in ["zero", "one", "two", "few", "many", "other"] {
        let form: Option<Value> = given.get(name)?;
        if name == category || name == "other" && chosen.is_none() {
            chosen = form.or(chosen);
        }
    }
    given.assert_all_used()?;
    if !given.has("other") {
        return Err(invalid("`plural` needs the form `other`: plural(one=\"guest\", other=\"guests\")"));
    }
    chosen.ok_or_else(|| invalid("`plural` needs the form `other`"))
}

/// A number, or a text with a number, without binary rounding errors.
fn exact(value: &Value) -> Result<Decimal, Error> {
    let text: Cow<'_, str> = match (value.kind(), value.as_str()) {
        (ValueKind::Number, _) => Cow::Owned(value.to_string()),
        (_, Some(text)) => Cow::Borrowed(text.trim()),
        (ValueKind::Undefined, _) => return Err(missing(value)),
        _ => return Err(invalid("not a number")),
    };
    let fits =
        text.len() <= MAX_DIGITS && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-'));
    let decimal = fits.then(|| Decimal::try_from_str(&text).ok()).flatten();
    decimal.ok_or_else(|| invalid("not a number, or one with too many digits"))
}

/// Rounds half to even, as is usual for money.
fn set_decimals(decimal: &mut Decimal, decimals: i16) {
    decimal.absolute.trim_end();
    decimal.round(-decimals);
    decimal.absolute.pad_end(-decimals);
}

fn written(reader: &Reader, decimal: &Decimal) -> Result<String, Error> {
    let formatter = DecimalFormatter::try_new(
        (&reader.locale).into(),
        icu_decimal::options::DecimalFormatterOptions::default(),
    )
    .map_err(|error| reader.unable(error))?;
    Ok(plain(&formatter.format(decimal)))
}

#[cfg(test)]
mod tests {
    use super::super::filters;
    use super::*;
    use minijinja::{Environment, UndefinedBehavior};

    fn render(locale: Option<&str>, zone: &str, expression: &str) -> Result<String, String> {
        let mut environment = Environment::empty();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        filters::add(&mut environment);
        let reader = Reader::new(locale.unwrap_or(DEFAULT_LOCALE), TimeZone::get(zone).unwrap());
        let context = Value::from(std::collections::BTreeMap::from([
            (READER, Value::from_object(reader)),
            ("at", Value::from("2026-01-21T18:30:05Z")),
            ("epoch", Value::from(1_769_020_205_i64)),
        ]));
        environment.render_str(&format!("{{{{ {expression} }}}}"), context).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn writes(locale: &str, expression: &str, text: &str) {
        assert_eq!(
            render(Some(locale), "Europe/Rome", expression).as_deref(),
            Ok(text),
            "{locale}: {expression}"
        );
    }

    #[test]
    fn moments_are_written_in_the_language_and_zone_of_the_reader() {
        writes("it", "at | date", "21 gen 2026");
        writes("it", "at | date('long')", "21 gennaio 2026");
        writes("it", "at | date(style='short')", "21/01/26");
        writes("it", "at | time", "19:30");
        writes("it", "at | datetime", "21 gen 2026, 19:30");
        writes("en", "at | date('long')", "January 21, 2026");
        writes("en", "at | time", "7:30 PM");
        writes("en", "at | date", "Jan 21, 2026");
        writes("en", "at | date('short')", "1/21/26");
        writes("en", "at | datetime", "Jan 21, 2026, 7:30 PM");
        writes("en-GB", "at | time('long')", "19:30:05");
        writes("pt-PT", "at | date('long')", "21 de janeiro de 2026");
        writes("pt", "epoch | time", "19:30");
        writes("it", "(epoch ~ '000') | int | time", "19:30");
        writes("it", "at | time(zone='Asia/Tokyo')", "03:30");
        writes("it", "at | date(zone='Asia/Tokyo')", "22 gen 2026");
        assert_eq!(render(None, "UTC", "at | time").unwrap(), "6:30 PM");
    }

    #[test]
    fn an_offset_counts_for_the_time_as_it_does_for_the_day() {
        for (offset, clock) in [("Z", "19:30"), ("+00:00", "19:30"), ("+02:00", "17:30"), ("-05:00", "00:30")]
        {
            let at = format!("'2026-01-21T18:30:00{offset}'");
            writes("it", &format!("{at} | time"), clock);
            let day = if clock == "00:30" { "22" } else { "21" };
            writes("it", &format!("{at} | datetime"), &format!("{day} gen 2026, {clock}"));
        }
    }

    #[test]
    fn what_has_no_zone_is_not_moved_to_one() {
        writes("it", "'2026-01-21T23:30' | time", "23:30");
        writes("it", "'19:30:05' | time('long')", "19:30:05");
        writes("it", "'2026-01-21' | date", "21 gen 2026");
        writes("it", "'2026-01-21T23:30' | datetime", "21 gen 2026, 23:30");
        writes("it", "'19:30' | time", "19:30");
        writes("en", "'19:30' | time", "7:30 PM");
    }

    #[test]
    fn what_is_no_moment_can_be_shown_as_it_came() {
        writes("it", "'2026-01-08' | date('long', or_text=true)", "8 gennaio 2026");
        writes("it", "'sabato sera' | date('long', or_text=true)", "sabato sera");
        writes("it", "'verso le 8' | time(or_text=true)", "verso le 8");
        writes("it", "at | datetime(or_text=true)", "21 gen 2026, 19:30");
        writes("it", "['x'] | datetime(or_text=true)", "['x']");
        assert!(render(Some("it"), "UTC", "nothing | date(or_text=true)").is_err());
        assert!(render(Some("it"), "UTC", "'x' | date(or_text=false)").is_err());
    }

    #[test]
    fn numbers_and_money_have_the_form_of_the_language() {
        writes("it", "1234567.5 | number", "1.234.567,5");
        writes("en", "1234567.891 | number(1)", "1,234,567.9");
        writes("en", "2 | number(2)", "2.00");
        writes("en", "0.1 | number", "0.1");
        writes("en", "-0.0004 | number", "0");
        writes("en", "-0.4 | number(0)", "0");
        writes("en", "-1.5 | number", "-1.5");
        writes("it", "12.5 | currency('EUR')", "12,50 €");
        writes("en", "12.5 | currency('EUR')", "€12.50");
        writes("pt-BR", "'12.5' | currency('BRL')", "R$ 12,50");
        writes("pt-PT", "12.5 | currency('EUR')", "12,50 €");
        writes("en", "-1234.5 | currency('USD')", "-$1,234.50");
        writes("en", "1234.5 | currency('JPY')", "¥1,234");
        writes("en", "-0.001 | currency('USD')", "$0.00");
        writes("it", "1 | currency('KWD')", "1,000 KWD");
    }

    #[test]
    fn plurals_follow_the_language() {
        let guests = |n: &str| format!("{n} | plural(one='ospite', other='ospiti')");
        writes("it", &guests("1"), "ospite");
        writes("it", &guests("0"), "ospiti");
        writes("it", &guests("1.0"), "ospite");
        writes("it", &guests("'1.00'"), "ospite");
        writes("en", "1.5 | plural(one='a', other='b')", "b");
        writes("en", "10.0 | plural(one='a', other='b')", "b");
        writes("it", &guests("1000000"), "ospiti");
        writes("pt", "0 | plural(one='mesa', other='mesas')", "mesa");
        writes("pl", "3 | plural(one='stolik', few='stoliki', many='stolików', other='stolika')", "stoliki");
        writes("pl", "5 | plural(one='stolik', few='stoliki', many='stolików', other='stolika')", "stolików");
    }

    #[test]
    fn a_locale_that_is_none_falls_back() {
        for locale in ["it_CH", "it-quite-wrong-here-x", "it-!"] {
            writes(locale, "'2026-01-21' | date('long')", "21 gennaio 2026");
        }
        writes("", "'2026-01-21' | date('long')", "January 21, 2026");
        writes("ÿ", "'2026-01-21' | date('long')", "January 21, 2026");
    }

    #[test]
    fn wrong_arguments_are_errors_that_do_not_tell_the_value() {
        for (expression, word) in [
            ("'secret' | date", "RFC 3339"),
            ("'2026-13-01' | date", "RFC 3339"),
            ("99999999999999999 | date", "RFC 3339"),
            ("none | time", "RFC 3339"),
            ("at | date('huge')", "short"),
            ("at | date(size='short')", "size"),
            ("at | date(zone='Mars')", "IANA"),
            ("'secret' | number", "not a number"),
            ("1e300 | number", "digits"),
            ("1 | number(99)", "decimals"),
            ("1 | currency('euro')", "ISO 4217"),
            ("1 | plural(one='a')", "other"),
            ("1 | plural(one='a', other='b', some='c')", "some"),
            ("nothing | date", "undefined"),
            ("nothing | currency('EUR')", "undefined"),
        ] {
            let error = render(Some("it"), "UTC", expression).unwrap_err();
            assert!(error.contains(word) && !error.contains("secret"), "{expression}: {error}");
        }
    }
}
