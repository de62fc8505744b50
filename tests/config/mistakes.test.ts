import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';

import { readEnvironment } from '../../src/config/environment.ts';
import { ConfigError } from '../../src/config/problem.ts';
import type { Problem } from '../../src/config/problem.ts';
import { readConfig } from '../../src/config/read.ts';
import { scriptSchema } from '../../src/inference/engines/scripted/script-schema.ts';
import { runCommand } from '../cli/command.ts';

/** Two hundred configurations that are right but for one mistake: the message names its place, and the remedy. */
const files = 200;
const environment = readEnvironment({ HOME: '/home/somebody' });
const read = (text: string): unknown =>
  readConfig(text, { directory: '/srv', file: '/srv/tokenhouse.yaml', environment, scriptSchema });
const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-mistakes-'));
after(() => rmSync(folder, { recursive: true, force: true }));

/** A line `key: value` of a block; the first one of a list entry carries the dash. */
interface TextLine {
  readonly indent: number;
  readonly dash: boolean;
  readonly key: string;
  /** Empty: a group follows. */
  readonly value: string;
}

interface Mistake {
  readonly lines: readonly string[];
  /** Counted from one. */
  readonly line: number;
  /** `undefined`: where the line is right, but who knows what was meant. */
  readonly column: number | undefined;
  /** How far from `line` the message may be: a fault of indentation shows where the text stops making sense. */
  readonly slack?: number;
  readonly words: RegExp;
}

type Random = (below: number) => number;

/** mulberry32: the same files in every run. */
function randomOf(seed: number): Random {
  let state = seed * 0x9e3779b9;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const keyColumn = ({ indent, dash }: TextLine): number => indent + (dash ? 2 : 0) + 1;
const valueColumn = (line: TextLine): number => keyColumn(line) + line.key.length + 2;
const textOf = ({ indent, dash, key, value }: TextLine): string =>
  `${' '.repeat(indent)}${dash ? '- ' : ''}${key}${key.startsWith('#') ? '' : ':'}${value === '' ? '' : ` ${value}`}`;

/** A file that is right. */
function goodLines(random: Random): TextLine[] {
  const lines: TextLine[] = [];
  const maybe = (): boolean => random(2) === 0;
  const add = (indent: number, key: string, value: string | number = '', dash = false): void => {
    if (random(6) === 0 && !dash) lines.push({ indent, dash: false, key: '# a remark', value: '' });
    lines.push({ indent, dash, key, value: String(value) });
  };
  add(0, 'server');
  add(2, 'inference');
  if (maybe()) add(4, 'host', '127.0.0.1');
  add(4, 'port', 9000 + random(100));
  if (maybe()) add(4, 'public_url', 'https://tokens.example.org');
  add(2, 'account');
  add(4, 'port', 9200 + random(100));
  add(2, 'limits');
  add(4, 'body_bytes_max', 1_000_000 + random(1000));
  add(4, 'drain_timeout_seconds', 1 + random(100));
  if (maybe()) add(4, 'concurrency_per_account_max', 1 + random(100));
  if (maybe()) add(0, 'storage', 'sqlite:./data/my.db');
  add(0, 'accounts');
  add(2, 'first_credit_cents', random(1000));
  add(0, 'models');
  for (let model = 0; model < 2 + random(3); model++) {
    add(2, 'id', `model-${model}`, true);
    if (maybe()) add(4, 'display_name', `Model ${model}`);
    add(4, 'context_length', 4096 + random(4096));
    add(4, 'max_output_tokens', 100 + random(1000));
    add(4, 'pricing');
    add(6, 'input_cents_per_million', 5 + random(100));
    add(6, 'output_cents_per_million', `${random(100)}.5`);
    add(6, 'cache_read_cents_per_million', 1);
    add(4, 'sampling', ['honor', 'ignore', 'fixed'][random(3)]);
    add(4, 'backends');
    for (let backend = 0; backend < 1 + random(3); backend++) {
      if (maybe()) {
        add(6, 'engine', 'openai', true);
        add(8, 'flavor', ['vllm', 'sglang', 'llama-server'][random(3)]);
        add(8, 'url', `http://10.0.0.${1 + random(200)}:8000/v1`);
        if (maybe()) add(8, 'max_concurrency', 1 + random(100));
      } else {
        add(6, 'engine', 'llama', true);
        add(8, 'sources', '[ model.gguf ]');
        add(8, 'sha256', 'ab'.repeat(32));
        add(8, 'queue', random(50));
      }
    }
  }
  return lines;
}

/** One of the lines that can take the mistake. */
function pick(lines: readonly TextLine[], random: Random, fits: (line: TextLine, index: number) => boolean): number {
  const found = lines.flatMap((line, index) => (fits(line, index) ? [index] : []));
  assert.ok(found.length > 0);
  return found[random(found.length)]!;
}

const isNumber = ({ value }: TextLine): boolean => /^\d+(\.\d+)?$/.test(value);
const isRemark = ({ key }: TextLine): boolean => key.startsWith('#');

/** The file with one line put in the place of another, and the place of its key or value. */
function changed(lines: readonly TextLine[], at: number, line: TextLine, of: 'key' | 'value', words: RegExp): Mistake {
  return {
    lines: lines.with(at, line).map(textOf),
    line: at + 1,
    column: of === 'key' ? keyColumn(line) : valueColumn(line),
    words,
  };
}

function withValue(lines: readonly TextLine[], at: number, value: string, words: RegExp): Mistake {
  return changed(lines, at, { ...lines[at]!, value }, 'value', words);
}

type Kind = (lines: readonly TextLine[], random: Random) => Mistake;

/** A value of its own for a key, whichever line of that key is taken. */
const valueOf =
  (key: string, value: (line: TextLine) => string, words: RegExp): Kind =>
  (lines, random) => {
    const at = pick(lines, random, (line) => line.key === key);
    return withValue(lines, at, value(lines[at]!), words);
  };

const kinds: Readonly<Record<string, Kind>> = {
  'a misspelt key': (lines, random) => {
    const at = pick(lines, random, (line) => !isRemark(line));
    const line = lines[at]!;
    const { key } = line;
    const cut = 1 + random(key.length - 1);
    const typo = [
      key.slice(0, cut) + key.slice(cut + 1),
      key.slice(0, cut) + key[cut] + key.slice(cut),
      key.slice(0, cut - 1) + key[cut] + key[cut - 1] + key.slice(cut + 1),
      `${key}s`,
    ].filter((word) => word !== key);
    const wrong = typo[random(typo.length)]!;
    return changed(lines, at, { ...line, key: wrong }, 'key', new RegExp(`"${wrong}" in .*did you mean "${key}"\\?`));
  },
  'a key in another style': (lines, random) => {
    const at = pick(lines, random, ({ key }) => key.includes('_'));
    const line = lines[at]!;
    const key = line.key.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
    return changed(lines, at, { ...line, key }, 'key', new RegExp(`"${key}".*did you mean "${line.key}"\\?`));
  },
  'a key that nothing is near to': (lines, random) => {
    const at = pick(lines, random, ({ value, dash }) => value !== '' && !dash);
    return {
      ...changed(lines, at, { ...lines[at]!, key: 'frobnication' }, 'key', /"frobnication".*known here: /),
    };
  },
  'a word for a number': (lines, random) => withValue(lines, pick(lines, random, isNumber), 'lots', /is "lots"/),
  'a list for a number': (lines, random) => withValue(lines, pick(lines, random, isNumber), '[1]', /is a list/),
  'a number for a group': (lines, random) => {
    const at = pick(lines, random, (line) => line.key === 'pricing' || line.key === 'accounts');
    const depth = lines[at]!.indent;
    const end = lines.findIndex((line, index) => index > at && line.indent <= depth);
    const rest = [...lines.slice(0, at + 1), ...lines.slice(end)];
    return withValue(rest, at, '7', /is 7, but must be a group of settings/);
  },
  'nothing where a value is needed': (lines, random) => {
    const at = pick(lines, random, (line) => isNumber(line) && line.key !== 'max_output_tokens');
    return { ...withValue(lines, at, '~', /is empty/) };
  },
  'out of range': (lines, random) => withValue(lines, pick(lines, random, isNumber), '-1', /is -1/),
  'a port too high': valueOf('port', () => '70000', /from 0 to 65535/),
  'the same port twice': (lines) => {
    const [first, second] = lines.flatMap((line, index) => (line.key === 'port' ? [index] : []));
    return withValue(lines, second!, lines[first!]!.value, /both hosts are set to port/);
  },
  'the same id twice': (lines, random) => {
    const at = pick(lines, random, (line) => line.key === 'id' && line.value !== 'model-0');
    return withValue(lines, at, 'MODEL-0', /is the same as "model-0"/);
  },
  'too deep by a blank': (lines, random) => {
    const at = pick(lines, random, (line, index) => follows(lines, index) && line.value !== '');
    const texts = lines.map(textOf);
    return {
      lines: texts.with(at, ` ${texts[at]}`),
      line: at + 1,
      column: undefined,
      slack: 1,
      words: /not valid YAML/,
    };
  },
  'too shallow by a blank': (lines, random) => {
    const at = pick(lines, random, (line, index) => follows(lines, index) && line.indent > 0);
    const texts = lines.map(textOf);
    return {
      lines: texts.with(at, texts[at]!.slice(1)),
      line: at + 1,
      column: undefined,
      slack: 1,
      words: /not valid YAML/,
    };
  },
  'a tab': (lines, random) => {
    const at = pick(lines, random, (line) => line.indent > 0 && !isRemark(line));
    const texts = lines.map(textOf);
    return {
      lines: texts.with(at, `\t${texts[at]!.trimStart()}`),
      line: at + 1,
      column: undefined,
      words: /tab|not valid YAML/,
    };
  },
  'an engine that does not exist': (lines, random) => {
    const at = pick(lines, random, ({ key }) => key === 'engine');
    const { value } = lines[at]!;
    return withValue(lines, at, `${value}x`, new RegExp(`did you mean "${value}"\\?`));
  },
  'a flavor that does not exist': valueOf('flavor', ({ value }) => `${value}z`, /did you mean "/),
  'a sampling that does not exist': valueOf('sampling', ({ value }) => `${value}e`, /did you mean "/),
  'no context length': without('context_length'),
  'no price': without('output_cents_per_million'),
  'no pricing at all': (lines, random) => {
    const at = pick(lines, random, ({ key }) => key === 'pricing');
    const end = lines.findIndex(({ indent }, index) => index > at && indent <= 4);
    const model = lines.findLastIndex((line, index) => index < at && line.key === 'id');
    return {
      lines: [...lines.slice(0, at), ...lines.slice(end)].map(textOf),
      line: model + 1,
      column: keyColumn(lines[model]!),
      words: /"pricing" is missing in models\[\d\]/,
    };
  },
  'an invalid URL': (lines, random) => {
    const at = pick(lines, random, ({ key }) => key === 'url' || key === 'max_output_tokens');
    if (lines[at]!.key === 'url') return withValue(lines, at, '10.0.0.5:8000', /base URL of the server/);
    return withValue(lines, at, '99999999', /above context_length/);
  },
  'the same key twice': (lines, random) => {
    const at = pick(lines, random, (line) => line.value !== '' && !line.dash);
    const line = lines[at]!;
    return {
      lines: lines.toSpliced(at + 1, 0, line).map(textOf),
      line: at + 2,
      column: keyColumn(line),
      words: /this key occurs twice/,
    };
  },
  'an alias without an anchor': (lines, random) =>
    withValue(lines, pick(lines, random, isNumber), '*nowhere', /alias \*nowhere is undefined/),
  'an anchor with the wrong kind of value': (lines, random) => {
    const at = pick(lines, random, isNumber);
    return { ...withValue(lines, at, '&here words', /is "words"/), column: undefined };
  },
  'a tag': (lines, random) => withValue(lines, pick(lines, random, isNumber), '!include x', /tags such as/),
  'a price in too small parts': valueOf('input_cents_per_million', () => '5.1234567', /cannot be represented exactly/),
  'a cache that costs more': valueOf('cache_read_cents_per_million', () => '900', /cached tokens would cost more/),
  'a size that cannot be': valueOf('body_bytes_max', () => '900000000', /largest allowed body would never be accepted/),
  'a second document': (lines) => {
    const texts = lines.map(textOf);
    return { lines: [...texts, '---', 'server: {}'], line: texts.length + 1, column: 1, words: /second YAML document/ };
  },
};

/** A line in the middle of a group of scalars, where a wrong indentation cannot mean anything else. */
function follows(lines: readonly TextLine[], index: number): boolean {
  const [before, line] = [lines[index - 1], lines[index]!];
  if (before === undefined || line.dash || isRemark(line) || isRemark(before) || before.value === '') return false;
  return before.indent === line.indent;
}

function without(key: string): Kind {
  return (lines, random) => {
    const at = pick(lines, random, (line) => line.key === key);
    const { indent } = lines[at]!;
    const rest = lines.toSpliced(at, 1);
    // The group that it is missing in begins with its first key.
    const first =
      key === 'context_length'
        ? rest.findLastIndex((line, index) => index < at && line.dash && line.indent === indent - 2)
        : rest.findLastIndex((line, index) => index < at && line.key === 'pricing') + 1;
    const begin = rest.findIndex((line, index) => index >= first && !isRemark(line));
    return {
      lines: rest.map(textOf),
      line: begin + 1,
      column: keyColumn(rest[begin]!),
      words: new RegExp(`"${key}" is missing in models\\[\\d\\]`),
    };
  };
}

function problemsOf(text: string): readonly Problem[] {
  try {
    read(text);
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.problems;
  }
  assert.fail(`nothing was refused:\n${text}`);
}

const names = Object.keys(kinds);
const made = Array.from({ length: files }, (_, seed) => {
  const random = randomOf(seed + 1);
  const lines = goodLines(random);
  const kind = names[seed % names.length]!;
  // Some mistakes need a line that this file may not have.
  let mistake: Mistake;
  let isOfKind = true;
  try {
    mistake = kinds[kind]!(lines, random);
  } catch (error) {
    if (!(error instanceof assert.AssertionError)) throw error;
    mistake = kinds['out of range']!(lines, random);
    isOfKind = false;
  }
  return {
    seed,
    kind,
    isOfKind,
    good: `${lines.map(textOf).join('\n')}\n`,
    text: `${mistake.lines.join('\n')}\n`,
    mistake,
  };
});

describe('each of two hundred files with one mistake', () => {
  test('is right without it', () => {
    for (const { good } of made) read(good);
  });

  for (const kind of names) {
    test(`${kind} is found where it is`, () => {
      const cases = made.filter((one) => one.kind === kind);
      assert.ok(cases.some(({ isOfKind }) => isOfKind));
      for (const { seed, text, mistake } of cases) {
        const problems = problemsOf(text);
        const reported = problems.map(({ where, what }) => `${where}: ${what}`).join('\n');
        const context = `seed ${seed}, expected ${mistake.line}:${mistake.column ?? '*'} ${mistake.words}\n${reported}\n${text}`;
        for (const { where } of problems) assert.match(where, /^tokenhouse\.yaml:\d+:\d+$/, context);
        const found = problems.some(({ where, what }) => {
          const [line = 0, column = 0] = where.split(':').slice(1).map(Number);
          const isThere = Math.abs(line - mistake.line) <= (mistake.slack ?? 0);
          return isThere && (mistake.column === undefined || column === mistake.column) && mistake.words.test(what);
        });
        assert.ok(found, context);
      }
    });
  }
});

test('config check says the same, as words and as JSON', async () => {
  const { text, mistake } = made[0]!;
  writeFileSync(join(folder, 'one.yaml'), text);
  const problems = problemsOf(text);
  const words = await runCommand(folder, ['config', 'check', 'one.yaml']);
  assert.equal(words.code, 78);
  assert.deepEqual(
    words.stdout.trimEnd().split('\n'),
    problems.map(({ where, what }) => `${where.replace('tokenhouse.yaml', 'one.yaml')}: ${what}`),
  );
  const json = await runCommand(folder, ['config', 'check', 'one.yaml', '--json']);
  assert.equal(json.code, 78);
  const found = JSON.parse(json.stdout) as {
    ok: boolean;
    problems: { file: string; line: number; column: number; what: string }[];
  };
  assert.equal(found.ok, false);
  assert.ok(
    found.problems.some(
      ({ file, line, column }) => file === 'one.yaml' && line === mistake.line && column === mistake.column,
    ),
  );
});

test('faults of shape and of meaning are reported together, and none that only follows from another', () => {
  const text = `server:
  inference: { port: 70000 }
  account: { port: 8080 }
models:
  - id: a
    context_length: lots
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: vllm, url: "http://a/v1", api_key_env: NOT_SET } ]
  - id: b
    context_length: 100
    max_output_tokens: 200
    smapling: honor
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20, cache_read_cents_per_million: 9 }
    backends:
      - { engine: magic }
      - { engine: openai, flavor: vllm, url: "http://a/v1", api_key_env: NOT_SET }
`;
  assert.deepEqual(
    problemsOf(text).map(({ where }) => where),
    ['2:22', '6:21', '11:24', '12:5', '13:104', '15:19', '16:74'].map((place) => `tokenhouse.yaml:${place}`),
  );
});
