import { basename } from 'node:path';

import { fileServer, sendFile, type FileServer } from '../inference/model-files/file-server.ts';
import { sha256Of } from './folder.ts';

export const hubCommit = 'a1'.repeat(20);

/** What the hub says and sends, unless a test changes it. */
export interface HubFaults {
  oid?: string;
  cutAfter?: number | undefined;
  size?: number;
}

/** A hub on this computer with one repository, `o/r`, of these files. */
export const startHub = (bodies: ReadonlyMap<string, Buffer>, faults: HubFaults = {}): Promise<FileServer> =>
  fileServer((request, response, server) => {
    const url = request.url ?? '';
    if (/^\/api\/models\/o\/r\/revision\/(main|v1)$/.test(url)) response.end(JSON.stringify({ sha: hubCommit }));
    else if (url === `/api/models/o/r/tree/${hubCommit}?recursive=true`) {
      const files = [...bodies].map(([path, body]) => {
        const size = faults.size ?? body.length;
        return { type: 'file', path, size, lfs: { oid: faults.oid ?? sha256Of(body), size } };
      });
      const config = { type: 'file', path: 'generation_config.json', size: 30 };
      response.end(JSON.stringify([...files, config]));
    } else if (url.endsWith('/generation_config.json')) response.end('{"temperature": 0.6, "top_k": 20}');
    else {
      const body = bodies.get(basename(url));
      if (body === undefined) response.writeHead(404).end();
      else {
        const { cutAfter } = faults;
        faults.cutAfter = undefined;
        sendFile(request, response, server, { body, etag: `"${sha256Of(body)}"`, cutAfter });
      }
    }
  });
