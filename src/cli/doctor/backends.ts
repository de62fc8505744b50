import type { BackendStatus } from '../../app/control/status.ts';
import { answerShares, type AnswerCounts, type SharedMemory } from '../../config/backend-state.ts';
import type { LimitsConfig, ModelConfig, OpenAiBackendConfig, ServerConfig } from '../../config/config.ts';
import { openAiEngineOf } from '../../app/backends.ts';
import { lookClosely } from '../../app/look.ts';
import type { ListedAdapter } from '../../inference/engines/openai/listed-adapters.ts';
import { bytesInWords } from '../amount.ts';
import { foldersOf, programIn } from '../program-in-path.ts';
import type { Finding, Patient } from './finding.ts';

/** Checks external servers: whether they answer, accept the key, have the model, and are what the file says. */
export async function lookAtBackends({ config, status, environment }: Patient): Promise<readonly Finding[]> {
  const running = typeof status === 'object' ? status.backends : [];
  const wanted = config.models.flatMap((model) =>
    model.backends.flatMap((backend) => (backend.engine === 'openai' ? [{ model, backend }] : [])),
  );
  return await Promise.all(
    wanted.map(async ({ model, backend }) => {
      const { managed } = backend;
      if (managed === undefined) return await lookAt(model, backend, config.server);
      const isThis = ({ modelId, label }: BackendStatus): boolean => modelId === model.id && label === backend.name;
      const folders = foldersOf(environment);
      return lookAtManaged(`${model.id} · ${backend.name}`, managed, folders, running.find(isThis));
    }),
  );
}

const failedBy = { calls: 'answers with tool calls', forms: 'answers in JSON', errors: 'requests' } as const;

/** What the answers of the running service's backends were like in the last hour, and which of them is worse than its peers. */
export function lookAtAnswers({ status }: Pick<Patient, 'status'>): readonly Finding[] {
  if (typeof status !== 'object') return [];
  return status.backends.flatMap(({ modelId, label, quality, worse }): readonly Finding[] => {
    if (!quality || quality.hour.answered + quality.hour.failed === 0) return [];
    const found = `${modelId} · ${label} · in the last hour ${inWords(quality.hour)}`;
    if (!worse) return [{ check: 'answers', state: 'ok', found }];
    const why = `it failed ${percent(worse.share)} of its ${failedBy[worse.by]}, its peers ${percent(worse.peersShare)}: it is used less until it is better`;
    const repair = 'compare its version, flags, chat template and hardware with those of its peers';
    return [{ check: 'answers', state: 'warning', found, why, repair }];
  });
}

const percent = (share: number): string => `${Number((100 * share).toFixed(1))} %`;

function inWords(counts: AnswerCounts): string {
  const { answered, failed, calls, forms } = counts;
  const { json, known, fit, formsFit, cached, tokensPerSecond } = answerShares(counts);
  const said = (name: string, share: number | null): string => (share === null ? '' : `, ${percent(share)} ${name}`);
  return [
    `${answered} answered, ${failed} failed`,
    calls === 0 ? '' : ` · ${calls} tool calls${said('JSON', json)}${said('known', known)}${said('fit', fit)}`,
    forms === 0 ? '' : ` · ${forms} in JSON${said('fit', formsFit)}`,
    cached === null ? '' : ` · ${percent(cached)} cached`,
    tokensPerSecond === null ? '' : ` · ${tokensPerSecond} tokens a second`,
  ].join('');
}

async function lookAt(
  model: ModelConfig,
  backend: OpenAiBackendConfig,
  { limits }: Pick<ServerConfig, 'limits'>,
): Promise<Finding> {
  const check = 'backend';
  const found = `${model.id} · ${backend.name} · ${backend.url}`;
  const {
    look: { state, problem },
    adapters,
  } = await lookClosely(model, backend);
  if (problem === null) {
    const said = [await saidBy(model, backend, limits), unsoldOf(model, backend, adapters)].filter(Boolean).join('; ');
    return { check, state: 'ok', found, ...(said === '' ? {} : { more: said }) };
  }
  return state === 'wrong'
    ? { check, state: 'warning', found, why: problem, repair: 'tokenhouse config show (see models[].backends[])' }
    : { check, state: 'problem', found, why: problem, repair: `curl -i ${backend.url}/models` };
}

/** Adapters of the model that its server has, and the file does not. */
function unsoldOf(
  { id, adapters, adapterOf }: ModelConfig,
  { model = id }: OpenAiBackendConfig,
  listed: readonly ListedAdapter[],
): string | undefined {
  const unsold = listed.filter(
    ({ name, parent, loraId }) =>
      (parent === undefined || parent === model) &&
      !adapters.some((each) => (loraId === undefined ? (each.adapter ?? each.id) === name : each.loraId === loraId)),
  );
  if (adapterOf !== undefined || unsold.length === 0) return undefined;
  const names = unsold.slice(0, 10).map(({ name }) => name);
  return `has adapters that the file does not sell: ${names.join(', ')}${unsold.length > 10 ? ', …' : ''} (models[].adapters)`;
}

/** The command of a server that the service starts, and how it does in the running service. */
function lookAtManaged(
  name: string,
  { command: [program = ''], directory }: NonNullable<OpenAiBackendConfig['managed']>,
  folders: readonly string[],
  running: BackendStatus | undefined,
): Finding {
  const check = 'backend';
  const { shared } = running ?? {};
  const does = running === undefined ? '' : ` · ${running.state}`;
  const found = `${name} · ${program}${does}${shared === undefined ? '' : ` · ${sharedInWords(shared)}`}`;
  if (programIn(program, program.includes('/') ? [directory] : folders) === undefined)
    return {
      check,
      state: 'problem',
      found,
      why: `there is no program ${program}, so the server cannot be started`,
      repair: `install it, or write its whole path in managed.command`,
    };
  if (running?.state !== 'failed')
    return shared?.exceeds === true
      ? {
          check,
          state: 'warning',
          found,
          why: `it holds more of ${shared.group} than its share says: what runs beside it may find too little`,
          repair: 'write a larger managed.share, or remove it: then it is learned',
        }
      : { check, state: 'ok', found };
  const [how = '', ...lines] = (running.detail ?? '').split('\n');
  return {
    check,
    state: 'problem',
    found,
    why: [how, ...lines.slice(-5)].join('\n                   '),
    repair: 'tokenhouse config show (see models[].backends[].managed.command)',
  };
}

/** What is declared of a server's part of its group, and what was learned. */
function sharedInWords({ group, declared, learned, isDoubted }: SharedMemory): string {
  const seen =
    learned &&
    `held up to ${bytesInWords(learned.bytes)} of ${bytesInWords(learned.ofBytes)} (${percent(learned.bytes / learned.ofBytes)})`;
  if (declared !== undefined) return `${group}: share ${declared}, ${seen ?? 'not seen yet'}`;
  if (isDoubted) return `${group}: all of it, because it failed beside others; ${seen ?? 'not seen yet'}`;
  return `${group}: ${seen ?? 'all of it until it was seen'}`;
}

/** What the server reports about itself, in words; undefined if nothing. */
async function saidBy(
  model: ModelConfig,
  backend: OpenAiBackendConfig,
  limits: LimitsConfig,
): Promise<string | undefined> {
  const engine = openAiEngineOf(model, backend, { limits });
  try {
    const report = await engine.report?.();
    if (report === undefined) return undefined;
    const { running, waiting, cacheTokens } = report;
    const cache = cacheTokens === undefined ? '' : `, its cache holds ${cacheTokens} tokens`;
    return `says ${running} running, ${waiting} waiting${cache}`;
  } finally {
    await engine.close();
  }
}
