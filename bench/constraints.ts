import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { printGbnf } from '../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../src/inference/constraints/json-schema.ts';
import { ApiError } from '../src/platform/errors.ts';
import { UsageError } from './arguments.ts';
import { runCommand } from './command.ts';
import { inOrder } from './instance-order.ts';
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
