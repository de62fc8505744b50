import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort, type Contender } from './contender.ts';

/** The least that a proxy can do: one worker, connections kept on both sides, nothing buffered, nothing logged. */
export const nginx = (program: string): Contender => ({
  name: 'nginx',
  prepare: async (folder, upstreamPort) => {
    const port = await freePort();
    const file = join(folder, 'nginx.conf');
    writeFileSync(file, configuration(port, upstreamPort));
    return { command: [program, '-p', folder, '-e', 'error.log', '-c', file], port, key: 'none', model: 'bench' };
  },
});

const configuration = (port: number, upstreamPort: number): string => `
daemon off;
master_process off;
pid nginx.pid;
error_log error.log warn;
events { worker_connections 8192; multi_accept on; }
http {
  access_log off;
  tcp_nodelay on;
  keepalive_requests 100000000;
  keepalive_timeout 120s;
  client_body_buffer_size 64k;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  upstream backend { server 127.0.0.1:${upstreamPort}; keepalive 2048; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location / {
      proxy_pass http://backend;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_buffer_size 16k;
      proxy_buffers 8 16k;
      proxy_read_timeout 120s;
    }
  }
}
`;
