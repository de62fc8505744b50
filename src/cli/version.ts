import packageFile from '../../package.json' with { type: 'json' };

/** The package's. */
export const version: string = packageFile.version;
