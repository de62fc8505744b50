/** What models write, as the playground reads it: whole or piece by piece the same, within bounds, and nothing of it takes effect. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import fc from 'fast-check';
import type { Token, Tokens } from 'marked';

import { blocksOf, isJson, linkOf, nothing, unescaped } from '../../web/src/pages/playground/markdown.ts';

/** Every token, those within others too. */
function everyOf(tokens: readonly Token[]): readonly Token[] {
  return tokens.flatMap((token) => {
    const {
      tokens: own = [],
      items = [],
      header = [],
      rows = [],
    } = token as {
      readonly tokens?: readonly Token[];
      readonly items?: readonly Token[];
      readonly header?: readonly Token[];
      readonly rows?: readonly (readonly Token[])[];
    };
    return [token, ...everyOf([...own, ...items, ...header, ...rows.flat()])];
  });
}
const typesOf = (text: string): readonly string[] => blocksOf(text).tokens.map(({ type }) => type);

test('blocks and what is in them', () => {
  assert.deepEqual(typesOf('# a\nb\n\n- c\n- d\n\n> e\n\n```js\nf\n```\ng|h\n-|-\ni|j\n\n---\n'), [
    'heading',
    'paragraph',
    'space',
    'list',
    'space',
    'blockquote',
    'space',
    'code',
    'table',
    'space',
    'hr',
  ]);
  const [open] = blocksOf('```js\nlet a = 1;').tokens as readonly Tokens.Code[];
  assert.deepEqual(
    [open!.type, open!.text, open!.lang],
    ['code', 'let a = 1;', 'js'],
    'a fence that is not closed yet',
  );
  const inline = everyOf(blocksOf('**a** _b_ ~~c~~ `d` [e](https://f.g) h\ni &lt;').tokens).map(({ type }) => type);
  for (const type of ['strong', 'em', 'del', 'codespan', 'link', 'br']) assert.ok(inline.includes(type), type);
  assert.equal(unescaped('&lt;&#33;&#x21;&nbsp;&AMP;&#0;&#x110000;&other;'), '<!!\u00A0&&#0;&#x110000;&other;');
  for (const [text, is] of [
    ['{"a":1}', true],
    [' [{"a":1}]', true],
    ['{ a', false],
    ['[1] says', false],
    ['[a](b)', false],
  ] as const)
    assert.equal(isJson(text), is, text);
});

/** What Markdown is made of, and what it is not, in any order. */
const parts = fc.constantFrom(
  ...[
    '# ',
    '- ',
    '1. ',
    '> ',
    '    ',
    '  ',
    '\t',
    '```',
    '~~~',
    '\n',
    '\n\n',
    '---',
    '===',
    '|',
    '|-|-|',
    '*',
    '**',
    '_',
  ],
  ...[
    '`',
    '[',
    '](',
    ')',
    '![',
    '<b>',
    '<!--',
    '<script>',
    'http://a.b',
    'a@b.c',
    '\\',
    '&lt;',
    ' ',
    'word',
    'two words',
    '\r\n',
  ],
  ...['[a]: b', '"', '~~', '[x]', ': ', '\u202E', '\0', '\u{1F600}'],
);

test('a text that grows is read as the whole one, and what stood before is kept', () => {
  fc.assert(
    fc.property(fc.array(fc.array(parts, { minLength: 1, maxLength: 8 }), { maxLength: 12 }), (pieces) => {
      let text = '';
      let blocks = nothing;
      for (const piece of pieces) {
        text += piece.join('');
        blocks = blocksOf(text, blocks);
        assert.deepEqual(blocks, blocksOf(text));
      }
    }),
    { numRuns: 500 },
  );
  const first = blocksOf('one\n\n- two\n\n```\ncode\n```\n\nthr');
  const second = blocksOf(`${first.text}ee`, first);
  assert.deepEqual(
    second.tokens.map((token, at) => token === first.tokens[at]),
    [true, true, true, true, false, false, false],
  );
});

describe('hostile', () => {
  test('HTML is text, and links lead to the web and to mail alone', () => {
    const text = `<script>alert(1)</script>

<img src=x onerror="alert(1)"> a <b onclick=alert(1)>b</b> <!-- c

> <iframe src="javascript:alert(1)"> [d](javascript:alert(1)) [e](java&#115;cript:alert(1)) ![f](data:image/png;base64,AA)
- [g](\u0001javascript:alert(1)) <javascript:alert(1)> [h](vbscript:x) [i](//evil.example) [j](/v1/keys) [k](file:///etc/passwd)`;
    const tokens = everyOf(blocksOf(text).tokens);
    assert.ok(tokens.length > 10);
    for (const { type } of tokens) assert.ok(!['html', 'def', 'tag'].includes(type), type);
    const links = tokens.filter(({ type }) => type === 'link' || type === 'image') as readonly Tokens.Link[];
    assert.ok(links.length >= 6, `${links.length}`);
    for (const { href } of links) assert.equal(linkOf(href), undefined, href);
    for (const href of ['https://a.example/b', 'http://a.example/', 'mailto:a@b.example'])
      assert.equal(linkOf(href), href);
    for (const href of [
      'java\nscript:alert(1)',
      ' JavaScript:alert(1)',
      'data:text/html,x',
      'blob:https://a/b',
      '#a',
      '',
    ])
      assert.equal(linkOf(href), undefined, href);
  });

  const characters = 100_000;
  const full = (text: string): string => text.repeat(Math.ceil(characters / text.length));
  const again = (text: string): string => full(`${text.repeat(Math.floor(3990 / text.length))}\n\n`);
  test('100 kB of anything are read in bounded time', () => {
    for (const text of [
      ...[
        '[',
        '[]',
        '![',
        '>',
        '> ',
        '* ',
        '- - ',
        '1. ',
        '*a ',
        '**a ',
        '_a*b',
        '`',
        '`a ``b ',
        '[a](',
        '[a](<b',
        '<',
        '<!--',
      ],
      ...[
        '<a b="',
        '|',
        '|-|-\n',
        'a|b\n-|-\n',
        '~~a ',
        '[a]: b "\n',
        '\\',
        '\\[',
        '&amp',
        'http://a.',
        'a@b.',
        '- a\n',
        '> a\nb\n',
      ],
      ...[
        ' ',
        '\n',
        ' \n',
        '\t',
        '# a\n',
        'a\n===',
        '```\n',
        '~~~ a\n\n',
        '> - ',
        '* a\n\n  b\n',
        '- [ ] ',
        '(',
        'word **b** `c` \n\n',
      ],
    ].flatMap((part) => [full(part), again(part), `[a](${full(part)}`, `- ${full(part)}`])) {
      const before = process.cpuUsage();
      const { tokens } = blocksOf(text);
      const { user } = process.cpuUsage(before);
      const shown = JSON.stringify(text.slice(0, 20));
      // A second at most on an idle machine; without the bounds, minutes.
      assert.ok(user < 10_000_000, `${shown} took ${user} µs`);
      assert.equal(tokens.reduce((sum, { raw }) => sum + raw.length, 0) > 0, true, shown);
    }
  });
});
