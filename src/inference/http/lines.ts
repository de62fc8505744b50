import { ApiError, errorBody, toApiError } from '../../platform/errors.ts';
import { requestIds } from '../../platform/ids/request-id.ts';
import { publicIdOf } from '../../platform/ids/uuid.ts';
import { Fold } from '../../generation/fold.ts';
import type { GenerationBatch } from '../../generation/event.ts';
import { wires } from '../batches/wires.ts';
import type { BatchLine, CheckedLine, KeptAnswer, LineOutcome, LineProgress, Lines } from '../batches/line.ts';
import { allow } from '../pipeline/allow.ts';
import { errorOfCancel } from '../pipeline/cancellation.ts';
import type { InferenceRoute } from '../pipeline/route.ts';
import { largeBodyBytes } from './body.ts';
import { CallRecord } from './call-record.ts';
import { zdrRequired } from './caller.ts';
import { noteError } from './note-error.ts';
import type { Host } from './host.ts';
import { beginOrder, ordering, parseBody } from './ordering.ts';
import { inferenceRoutes } from './routes.ts';
import { runOrder } from './run-order.ts';

/** Headers that the dialects read. */
const headers = { 'anthropic-version': '2023-06-01' };

/** A line of a batch: a request without a socket. */
class LineCall extends CallRecord {
  readonly sentId: string;
  publicId: string;
  clientId: string | null = null;
  readonly batchId: string;
  override readonly route: InferenceRoute;

  constructor(host: Host, { caller, batchId, endpoint }: BatchLine) {
    super(host, headers, host.services.running.beginLine());
    this.sentId = this.publicId = publicIdOf(this.id);
    this.batchId = batchId;
    this.route = routeOf(endpoint);
    this.claim(caller);
  }

  /** Checks what may have changed since the batch was made, and reads the line. */
  async read({ bytes, endpoint }: BatchLine): Promise<Readonly<Record<string, unknown>>> {
    const { host, account, key } = this;
    if (zdrRequired({}, { account, key })) throw noRetention();
    if (key.access?.mayUse(endpoint) === false) throw new ApiError('http_403', `This key may not use ${endpoint}.`);
    this.share = host.services.bodyBudget.share(account.id);
    this.share.expect(bytes.length);
    const line = await parseBody({ blocks: [bytes], length: bytes.length }, this.share, this);
    if (typeof line === 'object' && line !== null && !Array.isArray(line)) return line as Record<string, unknown>;
    throw new ApiError('schema_validation_failed', 'A line is a JSON object.');
  }

  /** What the client reads of a failure: JSON. */
  resultOf(error: ApiError): string {
    const { host, route, sentId } = this;
    const body = route.dialect.encodeError(errorBody(error, sentId, host.options.accountUrl));
    return resultOf(error.status, sentId, body);
  }
}

/** Whether batches may be for a path. */
export const hasLines = (endpoint: string): boolean => inferenceRoutes.get(endpoint)?.kind === 'generate';

/** The paths that batches may be for. */
export const lineEndpoints: readonly string[] = [...inferenceRoutes.keys()].filter(hasLines);

function routeOf(endpoint: string): InferenceRoute {
  const route = inferenceRoutes.get(endpoint);
  if (route?.kind !== 'generate') throw new ApiError('unsupported_value', `Lines cannot be for ${endpoint}.`);
  return route;
}

export const noRetention = (): ApiError =>
  new ApiError(
    'unsupported_parameter',
    'A batch keeps its requests and its results in files, which zero data retention forbids. Send the requests one by one.',
    { param: 'Service-ZDR' },
  );

/** Runs lines of batches on the way that requests take, from the parsed body on. */
export const linesOn = (host: Host): Lines => ({
  get areShed() {
    return host.services.admission.isShedding;
  },
  check: (line) => check(host, line),
  run: (line, keep, progress) => run(host, line, keep, progress),
});

async function check(host: Host, line: BatchLine): Promise<CheckedLine> {
  const call = new LineCall(host, line);
  try {
    const { customIdOf, bodyField } = wires[line.wire];
    const read = await call.read(line);
    const customId = customIdOf(read, line.endpoint);
    const body = read[bodyField] as { readonly stream?: unknown };
    try {
      if (body.stream === true)
        throw new ApiError('schema_validation_failed', "'stream' must be false: a batch has whole answers.", {
          param: 'stream',
        });
      const allowed = await allow(body, call.route.dialect, call, host.services);
      return { customId, modelId: allowed.model.id };
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const at = error.param === undefined ? bodyField : `${bodyField}.${error.param}`;
      return { customId, refused: { error: error.at(at), result: call.resultOf(error) } };
    }
  } finally {
    call.end();
  }
}

async function run(
  host: Host,
  line: BatchLine & { readonly customId: string },
  keep: (answer: KeptAnswer) => Promise<boolean>,
  progress: LineProgress,
): Promise<LineOutcome> {
  const { services } = host;
  const call = new LineCall(host, line);
  const { running, sentId } = call;
  call.clientId = requestIds(line.customId, sentId).clientId;
  const stop = (): void => running.cancel('cancelled');
  progress.begun(stop);
  let failed: Exclude<LineOutcome, { readonly kind: 'answered' }> | undefined;
  try {
    if (!services.ready()) throw errorOfCancel('drain', undefined);
    services.admission.check(line.bytes.length, largeBodyBytes);
    const body = (await call.read(line))[wires[line.wire].bodyField];
    call.slot = services.admission.take();
    const placing = ordering(body, call);
    const order = placing instanceof Promise ? await placing : placing;
    beginOrder(order, call, call.share!);
    const head = call.headOf(order);
    const fold = new Fold();
    const settling = async (closing: GenerationBatch): Promise<boolean> => {
      fold.read(closing);
      const answer = order.format.encodeResponse(fold.generation(), head);
      const isKept = await keep({ requestId: call.id, result: resultOf(200, sentId, answer) });
      if (!isKept) throw new ApiError('http_409', 'The line has been taken by another process.');
      return true;
    };
    const deliver = (batch: GenerationBatch): true => {
      // `settling` has read the closing batch already, before the charge.
      if (batch.at(-1)?.type !== 'usage') fold.read(batch);
      return true;
    };
    await runOrder(order, head, call, deliver, {
      signal: call.signal,
      settling,
      line: { placed: () => progress.placed(), release: stop },
    });
  } catch (error) {
    const { cancelled } = running;
    const reported = toApiError(cancelled === undefined ? error : errorOfCancel(cancelled, call.order?.model.id));
    const isStopped = (cancelled ?? 'deadline') !== 'deadline' || call.receipt?.ending === 'lost';
    failed = { kind: 'failed', error: reported, isStopped, result: call.resultOf(reported) };
  } finally {
    call.end();
  }
  report(call, failed?.error);
  return failed ?? { kind: 'answered' };
}

/** `body` is JSON. */
const resultOf = (status: number, requestId: string, body: string): string =>
  `{"status_code":${status},"request_id":"${requestId}","body":${body}}`;

/** What a line leaves in the log and in the metrics, like any request. */
function report(call: LineCall, error: ApiError | undefined): void {
  const { host, order, receipt, route, publicId, totalMs } = call;
  const status = error?.status ?? 200;
  if (receipt === undefined && error !== undefined)
    host.services.log.request({
      id: order?.idHex ?? null,
      publicId,
      method: 'BATCH',
      status,
      errorCode: error.code,
      totalMs,
    });
  noteError(call, error);
  host.services.metrics.request({
    api: route.api,
    model: order?.model.id ?? '',
    streamed: false,
    status,
    code: (receipt === undefined ? error?.code : receipt.errorCode) ?? '',
    answer: receipt,
    ownMs: performance.now() - call.receivedMs - call.engineMs,
  });
}
