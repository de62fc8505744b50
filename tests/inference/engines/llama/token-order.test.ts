import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { TokenOrder } from '../../../../src/inference/engines/llama/token-order.ts';
import { mulberry32 } from '../../../support/random.ts';

/** Tokens of these texts, and one more that ends an answer. */
const orderOf = (texts: readonly string[]): TokenOrder =>
  new TokenOrder({
    size: texts.length + 1,
    bytesOf: (id) => [...Buffer.from(texts[id] ?? '', 'latin1')],
    isEnd: (id) => id === texts.length,
  });

/** What a grammar says of tokens whose texts begin one of these sentences; `isOver`: the end may come too. */
const beginnings =
  (texts: readonly string[], sentences: readonly string[], isOver: boolean) =>
  (id: number): boolean =>
    id === texts.length ? isOver : sentences.some((sentence) => sentence.startsWith(texts[id]!));

/** Answers about tokens one by one. */
const each =
  (mayCome: (id: number) => boolean) =>
  (ids: Uint32Array): ArrayLike<number> =>
    ids.map((id) => (mayCome(id) ? 1 : 0));

describe('tokens that may come next', () => {
  test('are all found, with any vocabulary and any sentences', () => {
    const random = mulberry32(7);
    const below = (count: number): number => Math.floor(random() * count);
    const word = (lengthMax: number): string =>
      Array.from({ length: 1 + below(lengthMax) }, () => 'ab c\n\xc3'[below(6)]).join('');
    for (let round = 0; round < 500; round++) {
      // Some bytes have no token of their own, and several tokens may have the same text.
      const texts = Array.from({ length: 1 + below(80) }, () => word(5));
      const sentences = Array.from({ length: below(8) }, () => word(8));
      const mayCome = beginnings(texts, sentences, random() < 0.5);
      const expected = [...texts.keys(), texts.length].filter(mayCome);
      const found = orderOf(texts).allowed(each(mayCome));
      assert.deepEqual(
        found?.toSorted((one, other) => one - other),
        expected,
        JSON.stringify({ texts, sentences }),
      );
    }
  });

  test('are found by a few questions where few may come', () => {
    const random = mulberry32(8);
    const letters = Array.from({ length: 95 }, (_, index) => String.fromCharCode(32 + index));
    const words = Array.from({ length: 20_000 }, () =>
      Array.from({ length: 2 + Math.floor(random() * 5) }, () => letters[Math.floor(random() * 95)]).join(''),
    );
    const texts = [...letters, ...words];
    let questions = 0;
    const mayCome = beginnings(texts, ['"name": "'], false);
    const found = orderOf(texts).allowed((ids) => {
      questions += ids.length;
      return each(mayCome)(ids);
    });
    assert.deepEqual(found, [...texts.keys()].filter(mayCome));
    assert.ok(questions < 500, `${questions}`);
  });

  test('are asked about together where they continue each other', () => {
    const blanks = Array.from({ length: 60 }, (_, index) => ' '.repeat(index + 1));
    const texts = [...blanks, ...'abcdefgh', ' a', '  b', '   abc'];
    const mayCome = beginnings(texts, [' '.repeat(40), `${' '.repeat(3)}abc`], false);
    let calls = 0;
    const found = orderOf(texts).allowed((ids) => {
      calls++;
      return each(mayCome)(ids);
    });
    assert.deepEqual(
      found?.toSorted((one, other) => one - other),
      [...texts.keys()].filter(mayCome),
    );
    assert.ok(calls <= 3, `${calls}`);
  });

  test('are not looked for further where many may come', () => {
    const letters = Array.from({ length: 95 }, (_, index) => String.fromCharCode(32 + index));
    const pairs = letters.flatMap((one) => letters.map((other) => one + other));
    let questions = 0;
    const asked = (mayCome: (text: string) => boolean, texts: readonly string[]) => {
      questions = 0;
      return orderOf(texts).allowed((ids) => {
        questions += ids.length;
        return each((id) => id < texts.length && mayCome(texts[id]!))(ids);
      });
    };
    assert.equal(
      asked(() => true, [...letters, ...pairs]),
      undefined,
    );
    assert.ok(questions <= 96, `${questions}`);
    // Few first letters, and thousands of texts after them.
    const triples = pairs.filter((pair) => pair < '6').flatMap((pair) => letters.map((letter) => pair + letter));
    assert.equal(
      asked((text) => text < '6', [...letters, ...pairs, ...triples]),
      undefined,
    );
    assert.ok(questions < 1300, `${questions}`);
    assert.equal(
      orderOf(letters).allowed(() => undefined),
      undefined,
      'where an answer takes too long',
    );
  });
});
