#include "common/units.h"

#include <gtest/gtest.h>
#include <limits>
#include <string>

namespace ramspan {
namespace {

uint64_t Parsed(std::string_view text) {
  const Result<uint64_t> bytes = ParseBytes(text);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return bytes.ok() ? bytes.value() : std::numeric_limits<uint64_t>::max();
}

std::string Refusal(std::string_view text) {
  const Result<uint64_t> bytes = ParseBytes(text);
  EXPECT_FALSE(bytes.ok()) << "\"" << text << "\" was taken for " << (bytes.ok() ? bytes.value() : 0);
  if (bytes.ok()) return "";
  EXPECT_EQ(bytes.status().code(), StatusCode::kInvalidArgument);
  return bytes.status().message();
}

TEST(ParseBytes, AcceptsPlainNumbersAsBytes) {
  EXPECT_EQ(Parsed("0"), 0u);
  EXPECT_EQ(Parsed("4096"), 4096u);
  EXPECT_EQ(Parsed("4096.0"), 4096u);
  EXPECT_EQ(Parsed("17 B"), 17u);
}

TEST(ParseBytes, OneTerabyteIsNeverOneByte) {
  EXPECT_EQ(Parsed("1 TB"), 1000'000'000'000u);
  EXPECT_EQ(Parsed("1TB"), 1000'000'000'000u);
}

TEST(ParseBytes, DecimalUnitsArePowersOfTen) {
  EXPECT_EQ(Parsed("1kB"), 1000u);
  EXPECT_EQ(Parsed("2 MB"), 2'000'000u);
  EXPECT_EQ(Parsed("3GB"), 3'000'000'000u);
  EXPECT_EQ(Parsed("1PB"), 1000'000'000'000'000u);
}

TEST(ParseBytes, BinaryAndBareUnitsArePowersOfTwo) {
  EXPECT_EQ(Parsed("1KiB"), 1024u);
  EXPECT_EQ(Parsed("64MiB"), 64u << 20);
  EXPECT_EQ(Parsed("1.5 GiB"), 3ull << 29);
  EXPECT_EQ(Parsed("1 TiB"), 1ull << 40);
  EXPECT_EQ(Parsed("1 PiB"), 1ull << 50);
  EXPECT_EQ(Parsed("1K"), 1024u);
  EXPECT_EQ(Parsed("2M"), 2u << 20);
  EXPECT_EQ(Parsed("2G"), 2ull << 30);
  EXPECT_EQ(Parsed("1T"), 1ull << 40);
  EXPECT_EQ(Parsed("1P"), 1ull << 50);
}

TEST(ParseBytes, CaseAndBlanksDoNotMatter) {
  EXPECT_EQ(Parsed("64mib"), 64u << 20);
  EXPECT_EQ(Parsed("64MIB"), 64u << 20);
  EXPECT_EQ(Parsed("1mb"), 1'000'000u);
  EXPECT_EQ(Parsed("1g"), 1ull << 30);
  EXPECT_EQ(Parsed("  64 \t MiB "), 64u << 20);
}

TEST(ParseBytes, FractionsAreExactAndRoundDown) {
  EXPECT_EQ(Parsed("0.1 GB"), 100'000'000u);
  EXPECT_EQ(Parsed("0.3 KiB"), 307u);
  EXPECT_EQ(Parsed("1.999999999999999999 KiB"), 2047u);
  EXPECT_EQ(Parsed("1.0000000000000000000000000000000000001 KiB"), 1024u);
}

TEST(ParseBytes, TheLargestSizeIsTwoToThe63MinusOne) {
  EXPECT_EQ(Parsed("9223372036854775807"), (1ull << 63) - 1);
  EXPECT_NE(Refusal("9223372036854775808").find("2^63-1"), std::string::npos);
  EXPECT_NE(Refusal("8192 PiB").find("2^63-1"), std::string::npos);
  EXPECT_EQ(Parsed("8191 PiB"), 8191ull << 50);
  Refusal("18446744073709551616");
  Refusal("99999999999999999999999999999999999999999999 B");
  Refusal("18446744073709551615 PiB");
}

TEST(ParseBytes, RefusesWhatItWouldHaveToGuess) {
  for (const char* text :
       {"", " ", "-1", "-5 GiB", "+5", "abc", "MiB", ".5 GiB", "5. GiB", "1,5 GiB", "0x10", "1e9", "1 XB", "64 Mi",
        "10%", "1 GiB extra", "1 000 MiB", "1.2.3 GiB", "1..5 G", "1.5", "1.5 B", "0.0001 KiB", "64 bytes", "1 EB",
        "\x80", "1\n", "1 G B", "1GiB\r", "inf", "nan"}) {
    Refusal(text);
  }
  Refusal(std::string_view("1\0 GiB", 6));
}

TEST(ParseBytes, AForgottenUnitIsNotAFractionOfAByte) {
  EXPECT_NE(Refusal("1.5").find("a unit is missing"), std::string::npos);
}

TEST(ParseBytes, ErrorsQuoteTheTextOnOneLineAndShowExamples) {
  const std::string message = Refusal("1 lot\nof bytes");
  EXPECT_NE(message.find("\"1 lot?of bytes\""), std::string::npos) << message;
  EXPECT_NE(message.find("1.5 GiB"), std::string::npos);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_LT(Refusal(std::string(100'000, 'x')).size(), 300u);
}

TEST(FormatBytes, PrintsExactMultiplesWithoutDecimals) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(17), "17 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1024), "1 KiB");
  EXPECT_EQ(FormatBytes(64u << 20), "64 MiB");
  EXPECT_EQ(FormatBytes(1ull << 50), "1 PiB");
}

TEST(FormatBytes, PrintsThreeSignificantDigitsElsewhere) {
  EXPECT_EQ(FormatBytes(3ull << 29), "1.50 GiB");
  EXPECT_EQ(FormatBytes((12ull << 20) + (300ull << 10)), "12.3 MiB");
  EXPECT_EQ(FormatBytes((123ull << 20) + 5), "123 MiB");
  EXPECT_EQ(FormatBytes((1ull << 30) + 1), "1.00 GiB");
}

TEST(FormatBytes, RoundingUpMovesToTheNextUnit) {
  EXPECT_EQ(FormatBytes((1u << 20) - 1), "1.00 MiB");
  EXPECT_EQ(FormatBytes((1u << 20) - 1000), "1023 KiB");
  EXPECT_EQ(FormatBytes(10 * 1024 - 1), "10.0 KiB");
  EXPECT_EQ(FormatBytes(std::numeric_limits<uint64_t>::max()), "16384 PiB");
}

TEST(FormatBytes, IsReadBackWithinHalfAPercent) {
  for (uint64_t bytes = 1; bytes < (1ull << 62); bytes = bytes * 3 + 1) {
    const auto back = static_cast<double>(Parsed(FormatBytes(bytes)));
    EXPECT_NEAR(back, static_cast<double>(bytes), 0.005 * static_cast<double>(bytes) + 1) << FormatBytes(bytes);
  }
}

}  // namespace
}  // namespace ramspan
