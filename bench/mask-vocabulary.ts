/**
 * The tokens of both sides: each byte, and what a trained vocabulary joins in JSON: quotes with brackets and commas, literals, numbers,
 * syllables. Token N < 256 is byte N.
 */
export function vocabulary(): readonly Uint8Array[] {
  const joined = [
    ...[
      '{"',
      '":',
      '":"',
      '":{"',
      '":["',
      '":[',
      '":{',
      '","',
      '"},"',
      '"}',
      '"]',
      '"},{"',
      '}]',
      '}}',
      ']}',
      '],"',
      '},"',
      ',"',
      '""',
      '{}',
      '[]',
    ],
    ...['true', 'false', 'null', 'true,', 'false}', ':true', ':null', ':false', '":true', '":null'],
    ...Array.from({ length: 100 }, (_, number) => String(number).padStart(2, '0')),
    ...[
      '0.',
      '1.',
      '.0',
      '.5',
      '-1',
      '-0',
      '1e',
      'e+',
      'e-',
      '000',
      '100',
      '200',
      '201',
      '202',
      '19',
      '999',
      '2024-',
      '-01',
      'T00',
      ':00',
    ],
    ...[
      'http',
      'https://',
      '://',
      '.com',
      '/',
      'www.',
      '@',
      '\\n',
      '\\"',
      '\\\\',
      '\\u',
      '\\u00',
      '\\t',
      'é',
      'ü',
      '日本',
      '中',
      '😀',
      '’',
    ],
    ...[
      'name',
      'type',
      'id',
      'value',
      'description',
      'title',
      'version',
      'url',
      'date',
      'time',
      'key',
      'data',
      'items',
      'object',
      'string',
      'number',
    ],
    ...[
      'an',
      'th',
      'in',
      'er',
      'on',
      're',
      'ti',
      'en',
      'at',
      'st',
      'es',
      'or',
      'ing',
      'tion',
      'ed',
      'is',
      'it',
      'al',
      'ar',
      'ou',
      'ic',
      'le',
      'co',
      'de',
    ],
    ...[
      'ID',
      'Id',
      'Name',
      'Type',
      'AB',
      'EU',
      'US',
      'EN',
      'A1',
      'a1',
      'x-',
      '_id',
      '$ref',
      '$',
      '#/',
      '  ',
      ' a',
      ' the',
      '. ',
      ', ',
    ],
  ];
  const encoder = new TextEncoder();
  const bytes = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));
  return [...bytes, ...new Set(joined.filter((text) => text.length > 1))].map((token) =>
    typeof token === 'string' ? encoder.encode(token) : token,
  );
}

/** A text as tokens: at each place the longest, or one byte where `single` says so. */
export function tokensOf(text: string, words: readonly Uint8Array[], single: () => boolean): number[] {
  const rest = Buffer.from(text);
  const tokens: number[] = [];
  for (let at = 0; at < rest.length;) {
    let best = rest[at]!;
    if (!single()) {
      for (let token = 256; token < words.length; token++) {
        const word = words[token]!;
        if (word.length > words[best]!.length && rest.subarray(at, at + word.length).equals(word)) best = token;
      }
    }
    tokens.push(best);
    at += words[best]!.length;
  }
  return tokens;
}
