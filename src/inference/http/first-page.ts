import { escaped, page } from '../../platform/html.ts';

/** The page at `/`, for people who open the API's address in a browser. Programs get the 404 that says where to go. */
export const firstPage = (accountUrl: string): string =>
  page(
    'Tokenhouse',
    `<p>This is the inference host: programs call models here, below <code>/v1</code>. The base URL of OpenAI's clients is this address
with <code>/v1</code>, that of Anthropic's is this address alone.</p>
<ul>
<li><a href="/v1/models">Models and their prices</a></li>
<li><a href="/openapi.json">OpenAPI document</a></li>
<li><a href="${escaped(accountUrl)}">Account host</a>: keys, credit and usage</li>
<li><a href="${escaped(accountUrl)}/docs/errors">Error codes</a></li>
</ul>`,
  );
