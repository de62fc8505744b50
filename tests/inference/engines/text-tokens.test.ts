import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { TextTokens, twentieths } from '../../../src/inference/engines/text-tokens.ts';

const tokensOf = (...pieces: readonly string[]): number => {
  const text = new TextTokens();
  return pieces.reduce((sum, piece) => sum + text.add(piece), 0) / twentieths;
};

/**
 * Texts with the fewest tokens that a vocabulary makes of them: of SmolLM2's, GPT-4o's, and those of Llama 3, Qwen 3.5, DeepSeek and
 * Gemma 4, as llama.cpp has them.
 */
const measured: readonly (readonly [string, number, string])[] = [
  [
    'English',
    32,
    'All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and should act towards one another in a spirit of brotherhood.',
  ],
  [
    'an answer in Markdown',
    38,
    'Sure! Here\'s how: open the settings, click "Advanced", and choose the second option. It\'s faster.\n\n1. **Check** the cable.\n2. **Restart** the router.\n',
  ],
  [
    'code',
    38,
    'export function sum(values: readonly number[]): number {\n  let total = 0;\n  for (const value of values) {\n    total += value;\n  }\n  return total;\n}\n',
  ],
  [
    'JSON',
    35,
    '{"id":7,"name":"Ada Lovelace","email":"ada@example.com","active":true,"tags":["new","north"],"balance":1043.75}',
  ],
  [
    'German',
    38,
    'Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und sollen einander im Geist der Brüderlichkeit begegnen.',
  ],
  [
    'French',
    40,
    'Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de conscience et doivent agir les uns envers les autres dans un esprit de fraternité.',
  ],
  [
    'Russian',
    40,
    'Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью и должны поступать в отношении друг друга в духе братства.',
  ],
  ['Chinese', 27, '人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。'],
  [
    'Japanese',
    34,
    'すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、理性と良心とを授けられている。',
  ],
  [
    'Korean',
    37,
    '모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을 부여받았다.',
  ],
  ['Hindi', 21, 'सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।'],
  ['Arabic', 28, 'يولد جميع الناس أحراراً متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميراً.'],
  ['numbers', 41, '3.14159, 2.71828, 1.41421, 10482, 99371, 40027, 2026-11-28, 1000000'],
  ['emoji', 6, '😀🎉🔥🚀🙏🤔'],
];

describe('the estimate of tokens', () => {
  it('is the same for every way to cut a text', () => {
    const text = fc.string({ unit: 'binary', maxLength: 60 });
    fc.assert(
      fc.property(text, fc.array(fc.nat(60), { maxLength: 8 }), (whole, cuts) => {
        const at = [0, ...cuts.sort((a, b) => a - b), whole.length];
        assert.equal(tokensOf(...at.slice(1).map((to, index) => whole.slice(at[index], to))), tokensOf(whole));
      }),
    );
  });

  for (const [kind, fewest, text] of measured) {
    it(`of ${kind} is no more than any vocabulary makes of it, and not much less`, () => {
      const estimate = tokensOf(text);
      assert.ok(estimate <= 1.1 * fewest && estimate >= 0.6 * fewest, `${estimate} for at least ${fewest}`);
    });
  }

  it('is bounded by the length: a token for a character at most', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => {
        assert.ok(tokensOf(text) <= text.length);
      }),
    );
  });
});
