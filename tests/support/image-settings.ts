import type { FetchSettings } from '../../src/inference/images/fetcher.ts';
import type { ImageRules } from '../../src/platform/outbound/check-url.ts';
import { createNameResolver } from '../../src/platform/outbound/resolver.ts';

/** What holds without a configuration. */
export const defaultImageRules: ImageRules = { fetches: true, allowedHosts: new Set(), ownHosts: new Set() };

export const defaultFetchSettings: FetchSettings = { rules: defaultImageRules, resolver: createNameResolver([]) };
