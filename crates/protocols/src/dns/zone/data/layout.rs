//! Of what parts the data of each type are made, after the documents named. Types that are not here may have any data
//! (RFC 3597).
//!
//! Every type with names in its data has to be here: a compression pointer in them would be sent as it is, and point to
//! anything.

use domain::base::iana::Rtype;

use super::special;

/// A part of a type's data.
pub(super) enum Part {
    /// So many bytes.
    Fixed(usize),
    /// The type that a signature covers: not 0, which is that of signed messages (RFC 2931).
    Covered,
    /// An uncompressed name.
    Name,
    /// A character string: a length and so many bytes.
    String,
    /// One character string or more.
    Strings,
    /// At least so many bytes.
    Rest(usize),
    /// All that follows, which this function understands.
    Checked(fn(&[u8]) -> bool),
}

/// The parts of a type's data; `None` if anything may be there.
pub(super) fn parts(rtype: Rtype) -> Option<&'static [Part]> {
    use Part::{Checked, Covered, Fixed, Name, Rest, String, Strings};

    Some(match rtype {
        // RFC 1035
        Rtype::A => &[Fixed(4)],
        Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::MB | Rtype::MD | Rtype::MF => &[Name],
        Rtype::MG | Rtype::MR => &[Name],
        Rtype::SOA => &[Name, Name, Fixed(20)],
        Rtype::MINFO => &[Name, Name],
        Rtype::MX => &[Fixed(2), Name],
        Rtype::TXT => &[Strings],
        Rtype::HINFO => &[String, String],
        Rtype::WKS => &[Checked(special::is_wks)],
        // RFC 3596, RFC 2782, RFC 6672
        Rtype::AAAA => &[Fixed(16)],
        Rtype::SRV => &[Fixed(6), Name],
        Rtype::DNAME => &[Name],
        // RFC 1183, RFC 2230, RFC 6742
        Rtype::AFSDB | Rtype::RT | Rtype::KX | Rtype::LP => &[Fixed(2), Name],
        Rtype::RP => &[Name, Name],
        Rtype::X25 => &[Checked(special::is_x25)],
        Rtype::ISDN => &[Checked(special::is_isdn)],
        // RFC 2163
        Rtype::PX => &[Fixed(2), Name, Name],
        Rtype::TALINK => &[Name, Name],
        // RFC 7208, RFC 9606, and what registrations with IANA say
        Rtype::SPF | Rtype::NINFO | Rtype::AVC | Rtype::RESINFO | Rtype::WALLET => &[Strings],
        // RFC 1706; RFC 1348
        Rtype::NSAP => &[Rest(1)],
        Rtype::NSAPPTR => &[Name],
        // Drafts that were registered: Nimrod's locators, ATM's addresses, the kitchen sink, digital objects
        Rtype::EID | Rtype::NIMLOC => &[Rest(1)],
        Rtype::ATMA => &[Checked(special::is_atma)],
        Rtype::SINK => &[Fixed(3), Rest(0)],
        Rtype::DOA => &[Fixed(9), String, Rest(0)],
        // RFC 1712, RFC 1876
        Rtype::GPOS => &[String, String, String],
        Rtype::LOC => &[Checked(special::is_loc)],
        // RFC 2535
        Rtype::SIG => &[Covered, Fixed(16), Name, Rest(1)],
        Rtype::RRSIG => &[Fixed(18), Name, Rest(1)],
        Rtype::NXT => &[Name, Checked(special::is_nxt_bitmap)],
        Rtype::KEY => &[Checked(special::is_key)],
        Rtype::RKEY => &[Checked(special::is_rkey)],
        // RFC 3403
        Rtype::NAPTR => &[Fixed(4), String, String, String, Name],
        // RFC 4398
        Rtype::CERT => &[Fixed(5), Rest(1)],
        // RFC 2874, RFC 3123
        Rtype::A6 => &[Checked(special::is_a6)],
        Rtype::APL => &[Checked(special::is_apl)],
        // RFC 4034, RFC 4431, RFC 5155, RFC 7344
        Rtype::DS | Rtype::CDS | Rtype::DLV | Rtype::TA => &[Checked(special::is_ds)],
        Rtype::DNSKEY | Rtype::CDNSKEY => &[Fixed(4), Rest(1)],
        Rtype::NSEC => &[Name, Checked(special::is_nsec_bitmap)],
        Rtype::NSEC3 => &[Fixed(4), String, Checked(special::is_hash_and_bitmap)],
        Rtype::NSEC3PARAM => &[Fixed(4), String],
        // RFC 4255, RFC 6698, RFC 8162
        Rtype::SSHFP => &[Checked(special::is_sshfp)],
        Rtype::TLSA | Rtype::SMIMEA => &[Fixed(3), Rest(1)],
        // RFC 4025, RFC 8777, RFC 8005
        Rtype::IPSECKEY => &[Checked(special::is_ipseckey)],
        Rtype::AMTRELAY => &[Checked(special::is_amtrelay)],
        Rtype::HIP => &[Checked(special::is_hip)],
        // RFC 4701
        Rtype::DHCID => &[Fixed(3), Rest(1)],
        // RFC 7929, RFC 7477, RFC 8976, RFC 9460, RFC 9859
        Rtype::OPENPGPKEY => &[Rest(1)],
        Rtype::CSYNC => &[Fixed(6), Checked(special::is_bitmap)],
        Rtype::ZONEMD => &[Checked(special::is_zonemd)],
        Rtype::SVCB | Rtype::HTTPS => &[Fixed(2), Name, Checked(special::is_params)],
        Rtype::DSYNC => &[Fixed(5), Name],
        // RFC 6742, RFC 7043
        Rtype::NID | Rtype::L64 => &[Fixed(10)],
        Rtype::L32 => &[Fixed(6)],
        Rtype::EUI48 => &[Fixed(6)],
        Rtype::EUI64 => &[Fixed(8)],
        // RFC 7553, RFC 8659
        Rtype::URI => &[Fixed(4), Rest(0)],
        Rtype::CAA => &[Checked(special::is_caa)],
        _ => return None,
    })
}
