import { oddCalls, type OddCalls, type SaidCall } from '../odd-calls.ts';
import { between, chance, pick, type Random } from './chance.ts';

/** What a server wants to say in a choice: the same however it says it. */
export interface Meaning {
  readonly reasoning: string;
  readonly text: string;
  readonly calls: readonly SaidCall[];
  /** The same calls, as an odd server says them. */
  readonly oddly: OddCalls | undefined;
  readonly finish: 'stop' | 'length';
  /** Of this choice; the prompt is that of all. */
  readonly tokens: Tokens;
}

export interface Tokens {
  readonly prompt: number;
  readonly cached: number;
  readonly completion: number;
  readonly reasoning: number;
}

/** Of all kinds of characters that count differently, and what JSON and event streams care about. */
const pieces = [
  ...[
    'Hello',
    ' there',
    ' it',
    "'s",
    ' a',
    ' counterrevolutionary',
    ' naïve',
    ' über',
    ' 7',
    ' 1234567',
    '3.14',
    ' x=1;',
  ],
  ...['\n', '\n\n', '.\n', '; }\r\n', '  ', '\t', ' "quoted"', '\\', ' {"a": [1]}', ' <b>', ' data: [DONE]', '…', '—'],
  ...['天気', '。', 'ですね', 'カタ', ' Привет', ' мир', ' γειά', ' नमस्ते', ' 안녕', ' 😀', '👍🏽', '❤️', '𝒳', '\u2028'],
] as const;

function someText(random: Random): string {
  const count = chance(random, 0.03) ? between(random, 300, 900) : between(random, 1, 12);
  return Array.from({ length: count }, () => pick(random, pieces)).join('');
}

/** A text that no layout can change. */
const unlaidOut = (text: string): string => text.trim() || 'hm';

/** `isText`: a text completion, which says nothing else. */
export function someMeaning(random: Random, isText: boolean): Meaning {
  const reasoning = !isText && chance(random, 0.4) ? unlaidOut(someText(random)) : '';
  const hasCalls = !isText && chance(random, 0.3);
  const said = chance(random, hasCalls ? 0.4 : 0.95) ? someText(random) : '';
  const oddly = hasCalls ? oddCalls(between(random, 0, 1e9)) : undefined;
  const calls = oddly?.calls ?? [];
  // A call that a limit has cut is another matter.
  const isCuttable = calls.length === 0 || calls.at(-1)!.arguments !== '';
  const completion = between(random, 2, 400);
  const prompt = between(random, 1, 60);
  return {
    reasoning,
    text: reasoning === '' || said === '' ? said : unlaidOut(said),
    calls,
    oddly,
    finish: isCuttable && chance(random, 0.2) ? 'length' : 'stop',
    tokens: {
      prompt,
      cached: chance(random, 0.5) ? between(random, 0, prompt) : 0,
      completion,
      reasoning: reasoning === '' ? 0 : between(random, 1, completion),
    },
  };
}
