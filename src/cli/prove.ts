import { spawn } from 'node:child_process';

import { readEnvironment } from '../config/environment.ts';
import { dollars } from '../platform/dollars.ts';
import { adapters, type AdapterName } from '../prove/adapters.ts';
import { checksOf } from '../prove/checks.ts';
import type { Row, Scene } from '../prove/measure.ts';
import { NotReached, prove, type Proof } from '../prove/prove.ts';
import { ScriptedUpstream } from '../prove/scripted-upstream.ts';
import { CommandFailure } from './command-failure.ts';
import type { BareContext } from './context.ts';
import { exitCodes } from './failure.ts';
import { pricePerMillion, type WrittenPrices } from './option.ts';
import { table } from './output.ts';
import type { Line } from './output.ts';

interface ProveOptions {
  readonly gateway: AdapterName;
  readonly model: string;
  readonly price: WrittenPrices;
  readonly key?: string;
  readonly secondKey?: string;
  readonly adminUrl?: string;
  readonly adminKey?: string;
  readonly upstreamHost: string;
  readonly upstreamPort: number;
  readonly only?: readonly string[];
  readonly rate: number;
  readonly budget: bigint;
  readonly settleSeconds?: number;
  readonly restartCommand?: string;
}

/** `tokenhouse prove`: whether a gateway charges what is true, whatever breaks. It needs no service and no configuration here. */
export async function proveGateway({ print }: BareContext, options: ProveOptions, url = ''): Promise<number> {
  const { variable } = readEnvironment();
  const given = (value: string | undefined, name: string, what: string): string => {
    const found = value ?? variable(name);
    if (found === undefined) throw wrongUsage(what, `export ${name}=…`);
    return found;
  };
  const adapter = adapters[options.gateway];
  const chosen = checksOf(options.only);
  const keys = [
    given(options.key, 'PROVE_KEY', 'A key of the gateway is needed.'),
    given(options.secondKey, 'PROVE_SECOND_KEY', 'A second key of the gateway is needed, for its limits.'),
  ] as const;
  const adminKey =
    options.gateway === 'none'
      ? ''
      : given(options.adminKey, 'PROVE_ADMIN_KEY', 'A key of its administration is needed.');
  const upstream = await ScriptedUpstream.start(options.model, options.upstreamPort, options.upstreamHost).catch(
    (error: Error) => {
      throw notThere(
        `The upstream cannot listen on port ${options.upstreamPort}.`,
        error.message,
        'tokenhouse prove --upstream-port …',
      );
    },
  );
  const { restartCommand } = options;
  const scene: Scene = {
    gateway: { url, model: options.model },
    keys,
    upstream,
    prices: {
      input: pricePerMillion(`$${options.price.input_dollars_per_million}`),
      output: pricePerMillion(`$${options.price.output_dollars_per_million}`),
    },
    adapter,
    admin: { url: options.adminUrl ?? url, key: adminKey },
    settleMs: options.settleSeconds === undefined ? adapter.settleMs : options.settleSeconds * 1000,
    requestsPerMinute: options.rate,
    budget: options.budget,
    restart: restartCommand === undefined ? undefined : () => runCommand(restartCommand),
    foreign: [],
  };
  try {
    const proof = await prove(scene, chosen, ({ check, what, verdict }) => print.say(`${check}: ${what}: ${verdict}`));
    print.result(jsonOf(url, options, proof), linesOf(proof));
    return proof.isRight ? 0 : 1;
  } catch (error) {
    if (!(error instanceof NotReached)) throw error;
    throw notThere(
      `The gateway at ${url} does not answer with the model ${options.model}.`,
      error.message,
      `make http://${options.upstreamHost}:${upstream.port}/v1 the only upstream of that model`,
    );
  } finally {
    await upstream.close();
  }
}

const wrongUsage = (what: string, repair: string): CommandFailure =>
  new CommandFailure({
    what: [what],
    why: 'every check asks the gateway as its customers do',
    repair: [repair],
    exitCode: exitCodes.usage,
  });

const notThere = (what: string, why: string, repair: string): CommandFailure =>
  new CommandFailure({ what: [what], why, repair: [repair], exitCode: exitCodes.unavailable });

/** Its output goes to nowhere: a service that it starts would keep ours open. */
function runCommand(command: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn('sh', ['-c', command], { stdio: 'ignore' });
    child.once('error', reject);
    child.once('exit', () => resolve());
  });
}

const trueText = ({ range }: Row): string => {
  if (range === null) return '–';
  const { least, most } = range;
  return least === most ? dollars(least) : `${dollars(least)} to ${dollars(most)}`;
};

const amountText = (amount: bigint | null): string => (amount === null ? '–' : dollars(amount));

function linesOf({ rows, lost, madeUp, isRight }: Proof): readonly Line[] {
  const body = table(
    ['check', 'what', 'verdict', 'charged', 'true', 'lost', 'made up'],
    rows.map((row) => [
      ...[row.check, row.what, row.verdict, amountText(row.charged), trueText(row)],
      ...(row.charged === null ? ['–', '–'] : [dollars(row.lost), dollars(row.madeUp)]),
    ]),
  );
  const why = rows.flatMap(({ check, what, faults, notes }) =>
    [...faults.map((fault) => `wrong: ${fault}`), ...notes].map((text) => `${check}: ${what}: ${text}`),
  );
  const wrong = rows.filter(({ verdict }) => verdict === 'wrong').length;
  return [
    ...body,
    '',
    ...why,
    ...(why.length === 0 ? [] : ['']),
    `${isRight ? 'Right' : `${wrong} of ${rows.length} rows are wrong`}: lost ${dollars(lost)}, made up ${dollars(madeUp)}.`,
  ];
}

/** Amounts in microcents, of which 100,000,000 are a dollar. */
const jsonOf = (
  url: string,
  { gateway, model, price }: ProveOptions,
  { rows, lost, madeUp, isRight }: Proof,
): object => ({
  url,
  gateway,
  model,
  ...price,
  ok: isRight,
  lost_microcents: lost,
  made_up_microcents: madeUp,
  rows: rows.map(({ range, charged, madeUp: madeUpHere, lost: lostHere, ...row }) => ({
    ...row,
    charged_microcents: charged,
    least_microcents: range?.least ?? null,
    most_microcents: range?.most ?? null,
    lost_microcents: lostHere,
    made_up_microcents: madeUpHere,
  })),
});
