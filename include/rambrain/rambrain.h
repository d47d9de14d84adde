// All that a program written for Rambrain includes at once.
#pragma once

#include "rambrain/managedPtr.h"
#include "rambrain/rambrainDefinitionsHeader.h"
