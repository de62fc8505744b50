import { generatesText, promiseOf } from '../catalog/card-flags.ts';
import type { AccountServices } from '../account-api/services.ts';
import type { Config, LimitsConfig, ModelConfig, OpenAiBackendConfig } from '../config/config.ts';
import { featureNames, type FeatureName } from '../generation/feature-names.ts';
import { claimNames, claims, type ClaimName, type Finding } from '../inference/claims/claims.ts';
import { UnboundFault } from '../inference/engines/engine.ts';
import { flavors } from '../inference/engines/openai/flavors/flavors.ts';
import { combineSignals } from '../platform/combine-signals.ts';
import { ApiError } from '../platform/errors.ts';
import { openAiEngineOf } from './backends.ts';
import { lookClosely } from './look.ts';

/** Whether a backend keeps one claim of its model's card. */
export interface ClaimReport {
  readonly claim: ClaimName;
  readonly state: 'kept' | 'broken' | 'unknown';
  /** What was found instead, or why nothing could be found; null if the claim is kept. */
  readonly found: string | null;
  /** The figure that the card should have, if the claim is a figure. */
  readonly measured?: number;
}

/** Tests one server after the other, for the operator. */
export function claimsTester(config: () => Config): NonNullable<AccountServices['lookAtClaims']> {
  let isBusy = false;
  return async (asked, signal) => {
    const { models, server } = config();
    const model = models.find(({ id, adapterOf }) => id === asked.model && adapterOf === undefined);
    const backend = model?.backends.find(({ name }) => name === asked.backend);
    // A server that the service starts may be asleep, and what serves an adapter is asked as its base.
    if (model === undefined || backend?.engine !== 'openai' || backend.managed !== undefined) return undefined;
    if (isBusy) throw new ApiError('http_409', 'Another server is being tested. Try again when that has ended.');
    isBusy = true;
    try {
      const reports = await lookAtClaims(model, backend, server.limits, signal);
      return reports.map(({ claim, state, found }) => ({ claim, what: claims[claim].what, state, found }));
    } finally {
      isBusy = false;
    }
  };
}

const claimTimeoutMs = 120_000;

/** Checks every claim that the card makes for a backend, and those that the file withdraws. Rejects only with the signal. */
export async function lookAtClaims(
  model: ModelConfig,
  backend: OpenAiBackendConfig,
  limits: Pick<LimitsConfig, 'firstTokenTimeoutMs' | 'streamIdleTimeoutMs'>,
  signal: AbortSignal,
): Promise<readonly ClaimReport[]> {
  if (!generatesText(model.capabilities)) return [];
  const { windowTokens } = await lookClosely(model, backend, signal);
  const look = async (name: ClaimName): Promise<Finding | { readonly failed: string }> => {
    let refusedStatus: number | null = null;
    // Each claim gets its own engine, so that the result of one does not change what is sent for the next.
    const engine = openAiEngineOf(model, backend, {
      limits,
      onIncident: ({ status }) => {
        if (status !== null && status >= 400 && status < 500) refusedStatus = status;
      },
    });
    const server = {
      engine,
      isChat: model.capabilities.chat.supported,
      contextLength: model.contextLength,
      windowTokens,
    };
    try {
      return await claims[name].look(server, combineSignals([signal, AbortSignal.timeout(claimTimeoutMs)]));
    } catch (error) {
      signal.throwIfAborted();
      return findingOf(error, refusedStatus);
    } finally {
      await engine.close();
    }
  };
  const reports: ClaimReport[] = [];
  for (const name of [...claimNames, ...featureNames.filter((each) => isLookedAt(each, model, backend))]) {
    let finding = await look(name);
    const isFeature = featureNames.some((each) => each === name);
    // A failing server fails everything. One that fails this twice, but not another request, cannot do this.
    if (isFeature && isFailure(finding)) finding = await look(name);
    if (isFeature && isFailure(finding) && !isFailure(await look('usage')))
      finding = { broken: 'such requests fail, and others do not' };
    reports.push(reportOf(name, isFailure(finding) ? { unknown: finding.failed } : finding));
  }
  return reports;
}

const isFailure = (finding: Finding | { readonly failed: string }): finding is { readonly failed: string } =>
  finding !== undefined && 'failed' in finding;

function reportOf(claim: ClaimName, finding: Finding): ClaimReport {
  if (finding === undefined) return { claim, state: 'kept', found: null };
  return 'broken' in finding
    ? {
        claim,
        state: 'broken',
        found: finding.broken,
        ...('measured' in finding ? { measured: finding.measured } : {}),
      }
    : { claim, state: 'unknown', found: finding.unknown };
}

/** A refusal means that the server cannot do it; a failure says nothing about it. */
function findingOf(error: unknown, refusedStatus: number | null): Finding | { readonly failed: string } {
  if (error instanceof Error && error.cause instanceof UnboundFault) return { broken: 'it answers in another form' };
  if (refusedStatus !== null && ![401, 403, 404, 408, 429].includes(refusedStatus))
    return { broken: `it refuses such a request (status ${refusedStatus})` };
  if (error instanceof ApiError && error.type === 'invalid_request_error')
    return { broken: 'it refuses such a request' };
  return { failed: `the request failed: ${error instanceof Error ? error.message : String(error)}` };
}

function isLookedAt(name: FeatureName, { capabilities }: ModelConfig, backend: OpenAiBackendConfig): boolean {
  return (
    backend.lacks.includes(name) || (promiseOf(name, capabilities) ?? isPromisedByFlavor[name]?.(backend) ?? false)
  );
}

/** Features that no flag of the card states, but the flavor does. */
const isPromisedByFlavor: Readonly<Partial<Record<FeatureName, (backend: OpenAiBackendConfig) => boolean>>> = {
  token_ids: ({ flavor }) => flavors[flavor].completions.returnsIds !== undefined,
  min_p: ({ flavor, forward }) => flavors[flavor].minP !== undefined || forward.includes('min_p'),
  top_k: ({ flavor, forward }) => flavors[flavor].topK !== undefined || forward.includes('top_k'),
};

/** The value that a backend's `lacks` should have after the check; where the result is unknown, the file's stays. */
export function lacksAfter(before: readonly FeatureName[], reports: readonly ClaimReport[]): readonly FeatureName[] {
  const stateOf = (name: FeatureName) => reports.find(({ claim }) => claim === name)?.state ?? 'unknown';
  return featureNames.filter((name) => {
    const state = stateOf(name);
    return state === 'broken' || (state === 'unknown' && before.includes(name));
  });
}
