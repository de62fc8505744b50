import { PdfTexts } from '../inference/files/pdf-text.ts';
import type { Files } from '../inference/files/files.ts';
import { ImageFetcher } from '../inference/images/fetcher.ts';
import { Constraints } from '../inference/pipeline/constraints.ts';
import { PromptCounts } from '../inference/pipeline/count.ts';
import { FileParts } from '../inference/pipeline/request-files.ts';
import type { WorkReading } from '../platform/metrics/service-readings.ts';

/** Work done for requests before their answers; accounts take turns at the places of each kind (docs/architecture.md). */
export interface RequestWork {
  readonly constraints: Constraints;
  readonly pdfs: PdfTexts;
  readonly imageFetcher: ImageFetcher;
  readonly fileParts: FileParts;
  readonly promptCounts: PromptCounts;
  readonly readings: () => readonly WorkReading[];
}

/** `opened` receives what closes each part. */
export function openRequestWork(files: Files, opened: { push(close: () => unknown): unknown }): RequestWork {
  const constraints = new Constraints();
  opened.push(() => constraints.close());
  const pdfs = new PdfTexts();
  opened.push(() => pdfs.close());
  const imageFetcher = new ImageFetcher();
  const fileParts = new FileParts(files, pdfs, imageFetcher);
  const promptCounts = new PromptCounts();
  const kinds = { form: constraints, file: fileParts, pdf: pdfs, fetch: imageFetcher, count: promptCounts };
  const readings = () =>
    Object.entries(kinds).map(
      ([
        kind,
        {
          places: { begun, waiting, refused },
        },
      ]) => ({ kind, begun, waiting, refused }),
    );
  return { constraints, pdfs, imageFetcher, fileParts, promptCounts, readings };
}
