import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { printGbnf } from '../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../src/inference/constraints/json-schema.ts';
import { ApiError } from '../src/platform/errors.ts';
import { UsageError } from './arguments.ts';
import { runCommand } from './command.ts';
import { openGrammarJudge } from '../tests/support/grammar-judge.ts';

/**
 * How well grammars made of JSON Schemas agree with instances that are known to be valid or not; see bench/README.md.
 * llama.cpp is the judge.
 */
const usage = `node scripts/run.mjs bench/constraints.ts FILE [--quiet]

  FILE      a line of JSON for each schema: {"name", "schema", "tests": [{"valid", "data"}]}
  --quiet   the figures only, not each schema that was refused and each instance that was judged otherwise
`;

interface Case {
  readonly name: string;
  readonly schema: unknown;
  readonly tests: readonly { readonly valid: boolean; readonly data: unknown }[];
}

await runCommand(main, usage);

async function main(args: readonly string[]): Promise<void> {
  const { values, positionals } = parseArgs({
    args: [...args],
    options: { quiet: { type: 'boolean' } },
    allowPositionals: true,
  });
  const [file] = positionals;
  if (file === undefined) throw new UsageError('Which file?');
  const cases = readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Case);
  const judge = await openGrammarJudge();
  const rest: string[] = [];
  const valid = { accepted: 0, refused: 0, all: 0 };
  const invalid = { rejected: 0, refused: 0, all: 0 };
  let refusedSchemas = 0;
  const compileMs: number[] = [];
  const judgeMs: number[] = [];
  for (const { name, schema, tests } of cases) {
    const ofKind = (isValid: boolean) => tests.filter((each) => each.valid === isValid);
    valid.all += ofKind(true).length;
    invalid.all += ofKind(false).length;
    let gbnf: string;
    const start = performance.now();
    try {
      gbnf = printGbnf(jsonSchemaGrammar(schema, 'schema'));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      refusedSchemas++;
      valid.refused += ofKind(true).length;
      invalid.refused += ofKind(false).length;
      rest.push(`refused   ${name}: ${error.code}: ${error.message}`);
      continue;
    } finally {
      compileMs.push(performance.now() - start);
    }
    const judgeStart = performance.now();
    const texts = tests.map(({ data }) => JSON.stringify(inOrder(data, schema, schema)));
    const answers = await judge.accepts(gbnf, texts);
    judgeMs.push(performance.now() - judgeStart);
    for (const [index, test] of tests.entries()) {
      const isAccepted = answers[index] === true;
      if (test.valid && isAccepted) valid.accepted++;
      else if (!test.valid && !isAccepted) invalid.rejected++;
      else {
        rest.push(
          `${test.valid ? 'rejected ' : 'accepted '} ${name}: ${texts[index] ?? ''}\n          ${JSON.stringify(schema)}`,
        );
      }
    }
  }
  await judge.dispose();
  if (values.quiet !== true) console.log(`${rest.join('\n')}\n`);
  const share = (part: number, all: number): string => `${part} of ${all} (${((100 * part) / all).toFixed(1)} %)`;
  console.log(`schemas refused                       ${share(refusedSchemas, cases.length)}`);
  console.log(`valid instances accepted              ${share(valid.accepted, valid.all - valid.refused)}`);
  console.log(`  accepted, or their schema refused   ${share(valid.accepted + valid.refused, valid.all)}`);
  console.log(`invalid instances rejected            ${share(invalid.rejected, invalid.all - invalid.refused)}`);
  console.log(
    `slowest schema, ours and llama.cpp's  ${slowest(compileMs)} ms, ${slowest(judgeMs)} ms with its instances`,
  );
}

function slowest(times: readonly number[]): string {
  return Math.max(0, ...times).toFixed(1);
}

/** The instance with members in the order of `properties`, as a grammar writes them; others keep theirs, at the end. */
function inOrder(data: unknown, schema: unknown, root: unknown): unknown {
  if (typeof data !== 'object' || data === null) return data;
  const schemas = parts(schema, root);
  if (Array.isArray(data)) {
    return data.map((item, index) => {
      const found = schemas.flatMap((each) => {
        const { items, prefixItems } = each;
        const list = Array.isArray(prefixItems) ? prefixItems : Array.isArray(items) ? items : [];
        return [list[index] ?? (Array.isArray(items) ? each['additionalItems'] : items)];
      });
      return inOrder(item, { allOf: found }, root);
    });
  }
  const members = new Map(Object.entries(data));
  const properties = schemas.flatMap((each) => Object.entries(isRecord(each['properties']) ? each['properties'] : {}));
  const required = schemas.flatMap((each) => (Array.isArray(each['required']) ? each['required'] : []));
  const names = new Set([...properties.map(([name]) => name), ...required.map(String), ...members.keys()]);
  const others = schemas.map((each) => each['additionalProperties']);
  return Object.fromEntries(
    [...names].flatMap((name) => {
      if (!members.has(name)) return [];
      const own = properties.flatMap(([each, child]) => (each === name ? [child] : []));
      return [[name, inOrder(members.get(name), { allOf: own.length > 0 ? own : others }, root)]];
    }),
  );
}

/** The schema and those that it is put together of. */
function parts(schema: unknown, root: unknown): readonly Record<string, unknown>[] {
  if (!isRecord(schema)) return [];
  const inner = ['allOf', 'anyOf', 'oneOf'].flatMap((keyword) =>
    Array.isArray(schema[keyword]) ? schema[keyword] : [],
  );
  const { $ref: reference } = schema;
  const target =
    typeof reference === 'string' && reference.startsWith('#/')
      ? reference
          .slice(2)
          .split('/')
          .reduce<unknown>((value, name) => (isRecord(value) ? value[decodeURIComponent(name)] : undefined), root)
      : undefined;
  return [schema, ...[...inner, target].flatMap((part) => parts(part, root))];
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
