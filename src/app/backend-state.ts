import type { EngineStatus } from '../inference/engines/engine.ts';
import type { Backend } from '../inference/pipeline/backend-pool.ts';
import type { WorseState } from '../config/backend-state.ts';
import { countsOf, type Worse } from '../inference/routing/backend-quality.ts';
import type { ServerReports } from '../inference/routing/server-reports.ts';
import type { BackendReading } from '../platform/metrics/service-readings.ts';
import type { OpenBackend } from './backends.ts';
import type { BackendStatus } from './control/status.ts';

const isReachable = (status: EngineStatus): boolean => status.state === 'ready' && status.isUnreachable !== true;

/** What `/metrics` says of a backend. */
export const readingOf = (backend: OpenBackend, reports: ServerReports<Backend>): BackendReading => ({
  model: backend.modelId,
  backend: backend.label,
  isReady: isReachable(backend.engine.status()),
  server: backend.engine.server,
  running: backend.running,
  waiting: backend.engine.waiting,
  isEjected: backend.ejectedUntilMs > 0,
  ejections: backend.ejections,
  cachedTokensExpected: backend.cachedTokensExpected,
  cachedTokensFound: backend.cachedTokensFound,
  answers: backend.quality === undefined ? undefined : countsOf(backend.quality.totals),
  firstToken: backend.quality?.firstTokens.figures(),
  isWorse: backend.quality?.worse !== undefined,
  cacheTokens: reports.cacheTokensOf(backend),
  foreign: reports.foreignAt(backend),
  memoryBytes: backend.engine.residence?.state === 'unloaded' ? 0 : backend.engine.residence?.memoryBytes,
  tokensPerSecond: backend.engine.residence?.tokensPerSecond,
  isLoaded: backend.engine.residence === undefined ? undefined : backend.engine.residence.state === 'loaded',
  isWaitingForMemory: backend.engine.residence === undefined ? undefined : backend.engine.residence.state === 'waiting',
});

/** What the operator's pages and commands say of a backend. */
export function statusOf(backend: OpenBackend): BackendStatus {
  const { modelId, label, engine, concurrencyMax, failures, ejectedUntilMs, measuredTokensPerSecond } = backend;
  const status = engine.status();
  const { state, detail = null } = status;
  return {
    modelId,
    label,
    state: state === 'down' || (state === 'ready' && !isReachable(status)) ? 'failed' : state,
    detail,
    file: backend.fileInUse(),
    runningMax: Number.isFinite(concurrencyMax) ? concurrencyMax : null,
    failures,
    ejectedForMs: ejectedUntilMs === 0 ? null : Math.max(0, Math.ceil(ejectedUntilMs - performance.now())),
    promptTokensPerSecond: measuredTokensPerSecond === 0 ? null : Math.round(measuredTokensPerSecond),
    ...qualityOf(backend),
    shared: engine.server?.memory,
    residence: engine.residence,
  };
}

function qualityOf({ quality }: OpenBackend): Pick<BackendStatus, 'quality' | 'worse'> {
  if (quality === undefined) return { quality: null, worse: null };
  const nowMs = performance.now();
  quality.advance(nowMs);
  const { lately, hour, worse } = quality;
  return {
    quality: { fiveMinutes: countsOf(lately.sums), hour: countsOf(hour.sums) },
    worse: worse === undefined ? null : worseOf(worse, nowMs),
  };
}

const worseOf = ({ by, share, peersShare, sinceMs }: Worse, nowMs: number): WorseState => ({
  by,
  share,
  peersShare,
  forMs: Math.round(nowMs - sinceMs),
});
