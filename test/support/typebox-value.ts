/** TypeBox's checks of values, of the same copy that `src/schema/typebox.ts` loads. */
import { createRequire } from 'node:module'
import type * as TypeBoxValue from '@sinclair/typebox/value'

export const { Value } = createRequire(import.meta.url)(
  '@sinclair/typebox/value',
) as typeof TypeBoxValue
