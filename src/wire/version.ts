/** The version of this package, as people and programs are told; a test holds it to package.json. */
export const VERSION = '0.1.0'
