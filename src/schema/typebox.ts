/**
 * TypeBox, loaded by `require`. As ES modules its 266 files would be opened at once, and the start
 * would fail where a process may have few open files. Nothing else in `src` imports it at run time.
 */
import { createRequire } from 'node:module'
import type * as TypeBox from '@sinclair/typebox'
import type * as Compiler from '@sinclair/typebox/compiler'

const require = createRequire(import.meta.url)
const typebox = require('@sinclair/typebox') as typeof TypeBox
const compiler = require('@sinclair/typebox/compiler') as typeof Compiler

export const Kind: typeof TypeBox.Kind = typebox.Kind
export const { Type, TypeRegistry } = typebox
export const { TypeCompiler, ValueErrorType } = compiler

export type { Static, TProperties, TSchema } from '@sinclair/typebox'
