import type { Description } from './figures.ts';
import type { Reading } from './registry.ts';
import type {
  AnswersReading,
  BackendReading,
  ModelReading,
  ServiceReadings,
  SourceReading,
  WorkReading,
} from './service-readings.ts';

/** A metric that is read on each scrape: by default a gauge without labels, summed over processes. */
export interface ReadingMetric
  extends Pick<Description, 'name' | 'help'>, Partial<Pick<Description, 'type' | 'labels' | 'across'>> {
  readonly read: (service: ServiceReadings) => number | readonly Reading[];
}

export const backendLabels = ['model', 'backend'];

export const perBackend =
  (read: (backend: BackendReading) => Reading[1] | undefined) =>
  (service: ServiceReadings): readonly Reading[] =>
    service.backends().flatMap((backend): Reading[] => {
      const value = read(backend);
      return value === undefined ? [] : [[[backend.model, backend.backend], value]];
    });

/** Several figures of the answers of each backend, by a label. */
export const perAnswers =
  (read: (answers: AnswersReading) => Readonly<Record<string, number>>) =>
  (service: ServiceReadings): readonly Reading[] =>
    service
      .backends()
      .flatMap(({ model, backend, answers }) =>
        answers === undefined
          ? []
          : Object.entries(read(answers)).map(([label, value]): Reading => [[model, backend, label], value]),
      );

export const perModel =
  (read: (model: ModelReading) => number | undefined) =>
  (service: ServiceReadings): readonly Reading[] =>
    service.models().flatMap((each): Reading[] => {
      const value = read(each);
      return value === undefined ? [] : [[[each.model], value]];
    });

export const sourceLabels = ['model', 'source'];

export const perSource =
  (read: (source: SourceReading) => number) =>
  (service: ServiceReadings): readonly Reading[] =>
    service.sources().map((each) => [[each.model, each.source], read(each)]);

export const perWork =
  (read: (work: WorkReading) => number) =>
  (service: ServiceReadings): readonly Reading[] =>
    service.work().map((each) => [[each.kind], read(each)]);
