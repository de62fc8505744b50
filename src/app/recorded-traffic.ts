import { randomInt } from 'node:crypto';

import { OperationError } from '../accounts/operation.ts';
import type { Config } from '../config/config.ts';
import type { Log } from '../platform/log.ts';
import type { RecordedPage, TrafficRecorder, TrafficRecording } from '../inference/pipeline/traffic-recorder.ts';
import type { ServiceHandlers, TrafficRequestKind } from './control/service-requests.ts';

/** The recorders of all processes that answer requests here. */
export interface Recorders {
  readonly processes: number;
  record(recording: TrafficRecording): unknown;
  forget(): unknown;
  /** What one of them has recorded, from this request on. */
  page(process: number, from: number): Promise<RecordedPage | undefined>;
}

export const recordersOf = (traffic: TrafficRecorder): Recorders => ({
  processes: 1,
  record: (recording) => traffic.record(recording),
  forget: () => traffic.forget(),
  page: (_process, from) => Promise.resolve(traffic.page(from)),
});

/** What an operator asks for with `tokenhouse traffic`. */
export function trafficHandlers(
  { recorders, log }: { readonly recorders: () => Recorders; readonly log: Log },
  config: () => Config,
): ServiceHandlers<TrafficRequestKind> {
  return {
    record_traffic: async ({ minutes, model }) => {
      if (model !== undefined && !config().models.some(({ id }) => id === model))
        throw new OperationError(`There is no model ${JSON.stringify(model)}.`);
      const untilMs = Date.now() + 60_000 * minutes;
      await recorders().record({ untilMs, model, salt: randomInt(2 ** 31) });
      log.service({
        level: 'info',
        event: 'traffic_recording',
        detail: { minutes, ...(model === undefined ? {} : { model }) },
      });
      return { untilMs };
    },
    forget_traffic: async () => {
      await recorders().forget();
      log.service({ level: 'info', event: 'traffic_forgotten', detail: {} });
      return {};
    },
    recorded_traffic: async ({ process, from }) => {
      const { processes, page } = recorders();
      return { processes, page: (await page(process, from)) ?? null };
    },
  };
}
